//! Strips the module when it is linked, unless debug information is requested. Stripping by maturin would compile it
//! again.

fn main() {
    if std::env::var_os("DEBUG").is_none_or(|debug| debug == "false") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--strip-all");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
