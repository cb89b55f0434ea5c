//! Gives the library its name: a loader takes what is preloaded under a path and needed under a name for one.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libturbidite_preload.so");
    println!("cargo:rerun-if-changed=build.rs");
}
