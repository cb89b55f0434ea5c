//! The interface to the MPI shim (libturbidite_preload_mpi.so), which wraps MPI's calls. Defines all functions of
//! `turbidite_preload.h`.
//!
//! Safety: the shim guarantees that its tables stay valid until MPI ends. All ranks make these calls together, except
//! for the call before MPI_Abort.

use std::panic::{AssertUnwindSafe, catch_unwind};

use turbidite::runtime::TransportTable;

use crate::guard::Guard;
use crate::interpose::flush_all;
use crate::notices::complain;
use crate::session::{session, session_at_exit};
use crate::starting;
use crate::world::{World, together};

pub use crate::world::AgreementTable;

/// Runs a collective call of the shim, and catches panics.
fn call_together(body: impl FnOnce()) {
    call(|| together(body));
}

/// Runs a call of the shim, and catches panics.
fn call(body: impl FnOnce()) {
    let Some(_guard) = Guard::enter() else { return };
    if catch_unwind(AssertUnwindSafe(body)).is_err() {
        complain("internal error, please report it");
    }
}

/// Begins indexing after MPI has been initialised. Collective.
///
/// # Safety
/// Both tables are valid until [`turbidite_preload_before_finalize`] returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_preload_mpi_started(
    transport: *const TransportTable,
    agreement: *const AgreementTable,
) {
    call_together(|| {
        // SAFETY: guaranteed by the caller; NULL is checked for.
        let (Some(&transport), Some(&agreement)) = (unsafe { (transport.as_ref(), agreement.as_ref()) }) else {
            return complain("the MPI shim has no transport; nothing is indexed");
        };
        if agreement.struct_size as usize != size_of::<AgreementTable>() {
            return complain("the two preloaded libraries belong to different releases; nothing is indexed");
        }
        starting::mpi_started(World::Ranks { transport, agreement });
    });
}

/// Stops indexing, since the shim cannot use the program's MPI. The shim has reported the reason.
#[unsafe(no_mangle)]
pub extern "C" fn turbidite_preload_mpi_refused() {
    call(|| {
        if let Some(mut session) = session() {
            session.refuse();
        }
    });
}

/// Indexes complete epochs, if a question is due, inside a collective call of the program. Collective.
#[unsafe(no_mangle)]
pub extern "C" fn turbidite_preload_at_collective() {
    call_together(|| {
        if let Some(mut session) = session() {
            session.at_collective();
        }
    });
}

/// Ends indexing before MPI_Finalize. Collective.
#[unsafe(no_mangle)]
pub extern "C" fn turbidite_preload_before_finalize() {
    flush_all();
    call_together(|| {
        if let Some(mut session) = session() {
            session.end();
        }
    });
}

/// Ends indexing on this rank before MPI_Abort. Not collective.
#[unsafe(no_mangle)]
pub extern "C" fn turbidite_preload_before_abort() {
    flush_all();
    call(|| {
        if let Some(mut session) = session_at_exit() {
            session.abort();
        }
    });
}
