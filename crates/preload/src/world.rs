//! The ranks of the program: their agreement, and connections between them. Both use the MPI shim
//! (libturbidite_preload_mpi.so).
//!
//! Without an MPI library the process is a program of one rank.
//!
//! Safety: the shim guarantees that its tables stay valid until MPI ends, and that all ranks call these functions
//! together.

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
    /// There are none.
    Alone,
    /// An MPI library is loaded, but the shim has not reported its initialisation.
    Unknown,
    /// All ranks of MPI_COMM_WORLD.
    Ranks { transport: TransportTable, agreement: AgreementTable },
    /// Other ranks exist, but this rank does not (or no longer) communicate with them.
    Parted,
    /// MPI has been finalised.
    Ended,
}

// SAFETY: the shim's tables are used under the session's lock, in calls of the thread that uses MPI.
unsafe impl Send for World {}

impl World {
    /// Returns the set of ranks as known before MPI is initialised.
    pub(crate) fn find() -> Self {
        // PMPI_Init is no evidence of MPI, since the shim defines it. SAFETY: the name is a C string.
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

    /// Returns the number of ranks, or `None` for a program without MPI, which may write the files of several ranks.
    pub(crate) fn job_ranks(&self) -> Option<u32> {
        if let Self::Ranks { transport, .. } = self { Some(transport.ranks) } else { None }
    }

    /// Returns whether MPI is initialised and not finalised, so that a job may hold a connection to other ranks.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(self, Self::Ranks { .. } | Self::Parted)
    }

    /// Returns whether this rank is the first of its node.
    pub(crate) fn leads_node(&self) -> bool {
        self.topology().is_first_of_node(self.rank())
    }

    /// Returns the number of nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.topology().node_count()
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

    /// Replaces each value by its minimum over all ranks. Returns whether the reduction succeeded. Collective.
    pub(crate) fn minimum(&self, values: &mut [i64]) -> bool {
        self.reduce(values, |agreement| agreement.minimum)
    }

    /// Replaces each value by its sum over all ranks. Returns whether the reduction succeeded. Collective.
    pub(crate) fn sum(&self, values: &mut [i64]) -> bool {
        self.reduce(values, |agreement| agreement.sum)
    }

    fn reduce(&self, values: &mut [i64], which: impl Fn(&AgreementTable) -> Option<Reduce>) -> bool {
        let Self::Ranks { agreement, .. } = self else { return self.is_alone() };
        // SAFETY: the shim provides the function and its context. `values` is valid for `values.len()` elements.
        which(agreement)
            .is_some_and(|reduce| unsafe { reduce(agreement.context, values.as_mut_ptr(), values.len()) } == 0)
    }

    /// Returns the ranks' distribution over nodes.
    pub(crate) fn topology(&self) -> Topology {
        let Self::Ranks { transport, .. } = self else { return Topology::one_node() };
        // SAFETY: the shim's table describes the nodes of all ranks, or none.
        unsafe { transport.topology() }.unwrap_or_else(Topology::one_node)
    }

    /// Opens a connection to the other ranks, if any, for one dataset, and one for each of its indexes: two datasets on
    /// one connection would receive each other's messages. Collective.
    pub(crate) fn transport(&self, credit_batches: usize, indexes: usize) -> Option<Result<ForeignTransport, String>> {
        let Self::Ranks { agreement, .. } = self else { return None };
        // All ranks open as many connections, whatever fails.
        let mut opened: Vec<_> = (0..=indexes).map(|_| Self::connect(agreement, credit_batches)).collect();
        let records = opened.remove(0);
        let further = opened.into_iter().collect::<Result<Vec<_>, _>>();
        Some(records.and_then(|records| further.map(|further| records.with_further(further))))
    }

    fn connect(agreement: &AgreementTable, credit_batches: usize) -> Result<ForeignTransport, String> {
        // SAFETY: the shim provides the function and its context, and the result is checked for NULL.
        let table = agreement.connect.and_then(|connect| unsafe { connect(agreement.context).as_ref() });
        let Some(table) = table else { return Err("there is no connection to the other ranks".to_owned()) };
        // SAFETY: the shim implements the transport's contract, and its table outlives the session's use of it.
        unsafe { table.resolve(credit_batches) }.map_err(|error| error.to_string())
    }
}

/// Whether a thread of this process is in a collective call of our code.
static TOGETHER: AtomicBool = AtomicBool::new(false);

/// Returns whether a thread of this process waits for other ranks in our code, possibly for ever.
pub(crate) fn is_waiting_for_ranks() -> bool {
    TOGETHER.load(Ordering::Acquire)
}

/// Runs a collective function, in which ranks may wait for each other.
pub(crate) fn together(body: impl FnOnce()) {
    TOGETHER.store(true, Ordering::Release);
    body();
    TOGETHER.store(false, Ordering::Release);
}
