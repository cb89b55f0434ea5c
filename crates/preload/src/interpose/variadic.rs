//! The exported names of `variadic.c`'s functions.
//!
//! A Rust library exports only symbols defined in Rust. Each exported function is therefore a jump to the C function,
//! and preserves all arguments.

use std::arch::naked_asm;
use std::ffi::c_void;

unsafe extern "C" {
    fn turbidite_fprintf();
    fn turbidite_fprintf_chk();
    fn turbidite_vfprintf();
    fn turbidite_vfprintf_chk();
    fn turbidite_dprintf();
    fn turbidite_dprintf_chk();
    fn turbidite_vdprintf();
    fn turbidite_vdprintf_chk();
    fn turbidite_execl();
    fn turbidite_execle();
    fn turbidite_execlp();
}

macro_rules! jumps {
    ($($symbol:ident => $target:ident;)*) => {$(
        #[doc = concat!("`", stringify!($symbol), "`.")]
        /// # Safety
        /// The requirements are those of the C library's function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $symbol(_first: *mut c_void) -> i32 {
            #[cfg(target_arch = "x86_64")]
            naked_asm!("jmp {}", sym $target);
            #[cfg(target_arch = "aarch64")]
            naked_asm!("b {}", sym $target);
            #[cfg(target_arch = "riscv64")]
            naked_asm!("tail {}", sym $target);
            #[cfg(target_arch = "powerpc64")]
            naked_asm!("b {}", sym $target);
        }
    )*};
}

jumps! {
    fprintf => turbidite_fprintf;
    __fprintf_chk => turbidite_fprintf_chk;
    vfprintf => turbidite_vfprintf;
    __vfprintf_chk => turbidite_vfprintf_chk;
    dprintf => turbidite_dprintf;
    __dprintf_chk => turbidite_dprintf_chk;
    vdprintf => turbidite_vdprintf;
    __vdprintf_chk => turbidite_vdprintf_chk;
    execl => turbidite_execl;
    execle => turbidite_execle;
    execlp => turbidite_execlp;
}
