//! Finds the other ranks of the command's job under mpiexec.
//!
//! The command does not depend on MPI. If the environment shows that the command is one of several ranks, it loads
//! libturbidite_mpi_world.so, which was built with the site's mpicc, from its own prefix or the loader's path.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use turbidite::runtime::{ForeignTransport, TransportTable};
use turbidite::{Error, Topology};

use crate::failure::{Failure, complain};

const LIBRARY: &str = "libturbidite_mpi_world.so";

/// Environment variables in which launchers pass the number of ranks: MPICH and Intel MPI, Open MPI, MVAPICH.
const SIZES: [&str; 3] = ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"];

/// Whether MPI is being initialised.
static BEGINS: AtomicBool = AtomicBool::new(false);

/// All ranks of the job.
pub(crate) struct World {
    table: *mut TransportTable,
    library: Functions,
    /// Connections for indexes, which [`World::leave`] closes.
    further: RefCell<Vec<*mut TransportTable>>,
}

/// Functions of the library.
struct Functions {
    connect: unsafe extern "C" fn() -> *mut TransportTable,
    disconnect: unsafe extern "C" fn(*mut TransportTable) -> c_int,
    end: unsafe extern "C" fn(*mut TransportTable) -> c_int,
    last_error: unsafe extern "C" fn() -> *const c_char,
}

impl Functions {
    /// Returns the reason why the library's last call failed.
    fn why(&self) -> String {
        // SAFETY: the library returns a C string.
        unsafe { CStr::from_ptr((self.last_error)()) }.to_string_lossy().into_owned()
    }
}

impl World {
    /// Initialises MPI. Returns `None` if the process is not one of several ranks.
    pub(crate) fn find() -> Result<Option<Self>, Failure> {
        let ranks = SIZES.iter().find_map(|name| std::env::var(name).ok()?.parse::<u32>().ok());
        let Some(ranks @ 2..) = ranks else { return Ok(None) };
        let library = load()?;
        // SAFETY: the library of this name exports these functions with these types (mpi/world.c).
        let (begin, library) = unsafe {
            let begin: unsafe extern "C" fn() -> *mut TransportTable =
                std::mem::transmute(symbol(library, c"turbidite_mpi_world_begin")?);
            let connect: unsafe extern "C" fn() -> *mut TransportTable =
                std::mem::transmute(symbol(library, c"turbidite_mpi_world_connect")?);
            let disconnect: unsafe extern "C" fn(*mut TransportTable) -> c_int =
                std::mem::transmute(symbol(library, c"turbidite_mpi_world_disconnect")?);
            let end: unsafe extern "C" fn(*mut TransportTable) -> c_int =
                std::mem::transmute(symbol(library, c"turbidite_mpi_world_end")?);
            let last_error: unsafe extern "C" fn() -> *const c_char =
                std::mem::transmute(symbol(library, c"turbidite_mpi_last_error")?);
            (begin, Functions { connect, disconnect, end, last_error })
        };
        BEGINS.store(true, Ordering::Relaxed);
        // SAFETY: the registered function is valid until the process ends. `begin` is called once, before any other MPI
        // function.
        let table = unsafe {
            libc::atexit(explain_exit);
            begin()
        };
        BEGINS.store(false, Ordering::Relaxed);
        if table.is_null() {
            return Err(unusable(&library.why()));
        }
        let world = Self { table, library, further: RefCell::default() };
        if world.ranks() == 1 {
            // An MPI library that does not support the launcher is initialised as a program of one rank.
            world.leave()?;
            return Err(unusable(&format!(
                "MPI reports 1 rank where mpiexec started {ranks}: mpiexec belongs to another MPI"
            )));
        }
        Ok(Some(world))
    }

    fn table(&self) -> TransportTable {
        // SAFETY: the table is not NULL, and valid until `leave`.
        unsafe { *self.table }
    }

    pub(crate) fn rank(&self) -> u32 {
        self.table().rank
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.table().ranks
    }

    pub(crate) fn topology(&self) -> Topology {
        // SAFETY: the library's table describes the nodes of all ranks, or none.
        unsafe { self.table().topology() }.unwrap_or_else(Topology::one_node)
    }

    /// Returns the connection to the other ranks, which must not be used after [`World::leave`].
    pub(crate) fn transport(&self, credit_batches: usize) -> Result<ForeignTransport, Error> {
        // SAFETY: the library implements the transport's contract, and its table is valid until `leave`.
        unsafe { self.table().resolve(credit_batches) }
    }

    /// Returns the connection to the other ranks, with further ones for as many indexes. Collective.
    pub(crate) fn transport_with_further(
        &self,
        credit_batches: usize,
        indexes: usize,
    ) -> Result<ForeignTransport, Failure> {
        let mut further = Vec::with_capacity(indexes);
        for _ in 0..indexes {
            // SAFETY: MPI is initialised, and all ranks make the same calls.
            let table = unsafe { (self.library.connect)() };
            if table.is_null() {
                return Err(unusable(&self.library.why()));
            }
            self.further.borrow_mut().push(table);
            // SAFETY: as for the world's own table, which is closed later.
            further.push(unsafe { (*table).resolve(credit_batches) }?);
        }
        Ok(self.transport(credit_batches)?.with_further(further))
    }

    /// Finalises MPI, after the last use of the transport. Collective. If a rank exits without this call, mpiexec ends
    /// the job as failed, as it should if only this rank cannot continue.
    pub(crate) fn leave(self) -> Result<(), Failure> {
        // SAFETY: the same library created the tables, and this method consumes the world, so each is closed once.
        let closed = unsafe {
            let further = self.further.into_inner().into_iter();
            let disconnected = further.fold(0, |status, table| status | (self.library.disconnect)(table));
            disconnected | (self.library.end)(self.table)
        };
        if closed == 0 { Ok(()) } else { Err(unusable("MPI could not be finalised")) }
    }
}

/// Explains why the process exits: MPICH ends the process if it cannot reach the launcher.
extern "C" fn explain_exit() {
    if BEGINS.load(Ordering::Relaxed) {
        complain(&format!(
            "turbidite: {}",
            unusable("MPI could not be initialised; mpiexec may belong to another MPI")
        ));
    }
}

fn unusable(what: &str) -> Failure {
    Failure::Usage(format!(
        "this process is one of several MPI ranks, but {what}; 'make install PREFIX=… MPICC=…' builds {LIBRARY} for \
         your MPI"
    ))
}

/// Loads the library from the command's own prefix or the loader's path.
fn load() -> Result<*mut c_void, Failure> {
    let prefix = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.parent()?.to_owned()));
    let beside = prefix.map(|prefix| prefix.join("lib").join(LIBRARY)).filter(|path| path.exists());
    let path: PathBuf = beside.unwrap_or_else(|| Path::new(LIBRARY).to_owned());
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| unusable("its path has a NUL byte"))?;
    // SAFETY: our own library is loaded, which runs MPI's initialisers. Its symbols are global, as MPI requires.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if library.is_null() {
        // SAFETY: after a failure, dlerror returns a C string.
        let why = unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into_owned();
        return Err(unusable(&why));
    }
    Ok(library)
}

fn symbol(library: *mut c_void, name: &CStr) -> Result<*mut c_void, Failure> {
    // SAFETY: the library is loaded, and the name is a C string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    if found.is_null() { Err(unusable(&format!("{LIBRARY} belongs to another release"))) } else { Ok(found) }
}
