//! Gives the shared library the name that programs link against.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libturbidite.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
