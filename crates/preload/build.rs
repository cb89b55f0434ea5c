//! Sets the library's soname and compiles `variadic.c`.
//!
//! With a soname, the loader recognises that a library preloaded by path and a library needed by name are the same. The
//! C compiler is `$CC`, or `cc`, which also links Rust programs.

use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/interpose/variadic.c";
const WARNINGS: [&str; 3] = ["-Wall", "-Wextra", "-Werror"];

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libturbidite_preload.so");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-env-changed=CC");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let (object, archive) = (out.join("variadic.o"), out.join("libturbidite_variadic.a"));
    let mut compile = Command::new(compiler);
    compile.args(["-std=c11", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-c", SOURCE, "-o"]).arg(&object);
    run(compile.args(WARNINGS));
    run(Command::new("ar").arg("crs").arg(&archive).arg(&object));
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=turbidite_variadic");
}

fn run(command: &mut Command) {
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{command:?}: {status}"),
        Err(error) => panic!("{command:?}: {error}; a C compiler is needed"),
    }
}
