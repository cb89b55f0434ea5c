//! The ranks of the program, from the MPI shim (libturbidite_preload_mpi.so): agreement of all ranks, and connections.
//!
//! Without the shim the process is a program of one rank. `unsafe` trusts the shim: its tables stay valid until MPI
//! ends, and all ranks call these functions together.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use turbidite::runtime::{ForeignTransport, TransportTable};
use turbidite::{Result, Topology};

type Reduce = unsafe extern "C" fn(*mut c_void, *mut i64, usize) -> i32;
type Connect = unsafe extern "C" fn(*mut c_void) -> *const TransportTable;

/// `turbidite_agreement` of mpi/turbidite_preload.h.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AgreementTable {
    pub(crate) struct_size: u32,
    context: *mut c_void,
    minimum: Option<Reduce>,
    sum: Option<Reduce>,
    connect: Option<Connect>,
}

/// The other ranks.
#[derive(Debug)]
pub(crate) enum World {
    /// None.
    Alone,
    /// An MPI library is present, but MPI has not begun, or its beginning was not seen.
    Unknown,
    /// All ranks of MPI_COMM_WORLD.
    Ranks { transport: TransportTable, agreement: AgreementTable },
    /// Other ranks exist, but this one does not (or no longer) agree on anything with them.
    Parted,
    /// MPI has ended.
    Ended,
}

// SAFETY: the tables are the shim's, and used under the session's lock in calls of the thread that uses MPI.
unsafe impl Send for World {}

impl World {
    /// Returns the ranks as seen before MPI begins.
    pub(crate) fn find() -> Self {
        // Not PMPI_Init, which the shim has itself. SAFETY: only looks up a symbol.
        let mpi = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"PMPI_Comm_rank".as_ptr()) };
        if mpi.is_null() { Self::Alone } else { Self::Unknown }
    }

    pub(crate) fn is_alone(&self) -> bool {
        matches!(self, Self::Alone)
    }

    /// Returns whether ranks can ask each other now.
    pub(crate) fn can_agree(&self) -> bool {
        matches!(self, Self::Alone | Self::Ranks { .. })
    }

    pub(crate) fn why_not(&self) -> &'static str {
        match self {
            Self::Ended => "files were written after MPI_Finalize; they stay as they are and are not indexed",
            _ => {
                "this program uses MPI, but its calls are not seen; preload libturbidite_preload_mpi.so as well. The files \
                 stay as they are and are not indexed"
            }
        }
    }

    pub(crate) fn rank(&self) -> u32 {
        if let Self::Ranks { transport, .. } = self { transport.rank } else { 0 }
    }

    pub(crate) fn ranks(&self) -> u32 {
        if let Self::Ranks { transport, .. } = self { transport.ranks } else { 1 }
    }

    /// Returns whether MPI has begun and not ended, so that a job may hold a connection to other ranks.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(self, Self::Ranks { .. } | Self::Parted)
    }

    /// Returns whether this rank is the first of its node.
    pub(crate) fn leads_node(&self) -> bool {
        self.topology().is_first_of_node(self.rank())
    }

    pub(crate) fn leave(&mut self) {
        if let Self::Ranks { .. } = self {
            *self = Self::Ended;
        }
    }

    pub(crate) fn part(&mut self) {
        if let Self::Ranks { .. } = self {
            *self = Self::Parted;
        }
    }

    /// Replaces each value by its minimum over all ranks. Returns whether that succeeded.
    pub(crate) fn minimum(&self, values: &mut [i64]) -> bool {
        self.reduce(values, |agreement| agreement.minimum)
    }

    /// Replaces each value by its sum over all ranks. Returns whether that succeeded.
    pub(crate) fn sum(&self, values: &mut [i64]) -> bool {
        self.reduce(values, |agreement| agreement.sum)
    }

    fn reduce(&self, values: &mut [i64], which: impl Fn(&AgreementTable) -> Option<Reduce>) -> bool {
        let Self::Ranks { agreement, .. } = self else { return self.is_alone() };
        // SAFETY: the function and its context are the shim's; the values are ours.
        which(agreement)
            .is_some_and(|reduce| unsafe { reduce(agreement.context, values.as_mut_ptr(), values.len()) } == 0)
    }

    /// Returns the ranks' distribution over nodes.
    pub(crate) fn topology(&self) -> Topology {
        let Self::Ranks { transport, .. } = self else { return Topology::one_node() };
        // SAFETY: the shim names the node of every rank, or none.
        unsafe { transport.topology() }.unwrap_or_else(Topology::one_node)
    }

    /// Opens a connection to the other ranks, if any, for one dataset: two datasets on one connection would receive
    /// each other's messages. Collective.
    pub(crate) fn transport(&self, credit_batches: usize) -> Option<Result<ForeignTransport, String>> {
        let Self::Ranks { agreement, .. } = self else { return None };
        // SAFETY: the function and its context are the shim's; NULL is checked for.
        let table = agreement.connect.and_then(|connect| unsafe { connect(agreement.context).as_ref() });
        let Some(table) = table else { return Some(Err("there is no connection to the other ranks".to_owned())) };
        // SAFETY: the shim keeps to the contract and its table outlives the session's use of it.
        Some(unsafe { table.resolve(credit_batches) }.map_err(|error| error.to_string()))
    }
}

/// Set while ranks wait for each other in our code.
static TOGETHER: AtomicBool = AtomicBool::new(false);

/// Returns whether a thread of this process waits for other ranks in our code, possibly for ever.
pub(crate) fn is_waiting_for_ranks() -> bool {
    TOGETHER.load(Ordering::Acquire)
}

/// Runs a collective body, in which ranks may wait for each other.
pub(crate) fn together(body: impl FnOnce()) {
    TOGETHER.store(true, Ordering::Release);
    body();
    TOGETHER.store(false, Ordering::Release);
}
