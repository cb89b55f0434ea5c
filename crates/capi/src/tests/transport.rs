//! Ranks over a transport of the program, which lends the memory of messages.

use std::collections::VecDeque;
use std::ptr::without_provenance_mut;
use std::sync::Mutex;

use turbidite::runtime::TransportTable;

use super::*;
use crate::status::turbidite_abi_version;
use crate::writing::{turbidite_end_epoch_start, turbidite_end_epoch_wait};

const RANKS: u32 = 2;
/// Maximum number of messages in flight between two ranks on one channel.
const CREDIT: usize = 2;

/// A message in flight. Its memory is lent to the receiver until the receiver releases the message.
struct InFlight {
    from: u32,
    message: *const c_void,
    bytes: usize,
    token: *mut c_void,
}

/// A rank's mailbox: messages sent to the rank and not yet polled, messages lent to the rank, and tokens of its sends
/// that are complete.
#[derive(Default)]
struct Port {
    arrived: [VecDeque<InFlight>; 4],
    lent: Vec<InFlight>,
    left: VecDeque<usize>,
}

/// A zero-copy transport: the sender's memory is lent to the receiver.
#[derive(Default)]
struct Wire {
    ports: [Mutex<Port>; RANKS as usize],
}

// SAFETY: the sender does not access the memory at these addresses until its token is returned.
unsafe impl Send for Wire {}
// SAFETY: as above, and all shared state is behind a lock.
unsafe impl Sync for Wire {}

/// One rank's endpoint.
struct End {
    wire: Arc<Wire>,
    rank: u32,
}

impl End {
    /// Returns the endpoint behind a context.
    ///
    /// # Safety
    /// `context` is from a table created by [`table`], whose endpoint still exists.
    unsafe fn of<'a>(context: *mut c_void) -> &'a Self {
        // SAFETY: guaranteed by the caller.
        unsafe { &*context.cast::<Self>() }
    }

    fn port(&self, rank: u32) -> std::sync::MutexGuard<'_, Port> {
        self.wire.ports[rank as usize].lock().unwrap()
    }
}

unsafe extern "C" fn send(
    context: *mut c_void,
    to: u32,
    channel: i32,
    message: *const c_void,
    bytes: usize,
    token: *mut c_void,
) -> i32 {
    // SAFETY: `table` has set this context.
    let end = unsafe { End::of(context) };
    let mut port = end.port(to);
    let queue = &mut port.arrived[channel as usize];
    if channel != 0 && queue.len() >= CREDIT {
        return 2;
    }
    queue.push_back(InFlight { from: end.rank, message, bytes, token });
    1
}

unsafe extern "C" fn completed(context: *mut c_void) -> *mut c_void {
    // SAFETY: `table` has set this context.
    let end = unsafe { End::of(context) };
    end.port(end.rank).left.pop_front().map_or(null_mut(), without_provenance_mut)
}

unsafe extern "C" fn poll(context: *mut c_void, channel: i32, message: *mut *const c_void, bytes: *mut usize) -> i32 {
    // SAFETY: `table` has set this context.
    let end = unsafe { End::of(context) };
    let mut port = end.port(end.rank);
    let Some(next) = port.arrived[channel as usize].pop_front() else { return 0 };
    // SAFETY: the caller passes valid output parameters.
    unsafe {
        message.write(next.message);
        bytes.write(next.bytes);
    }
    port.lent.push(next);
    1
}

unsafe extern "C" fn release(context: *mut c_void, message: *const c_void) {
    // SAFETY: `table` has set this context.
    let end = unsafe { End::of(context) };
    let mut port = end.port(end.rank);
    let place = port.lent.iter().position(|lent| std::ptr::eq(lent.message, message)).unwrap();
    let given_back = port.lent.swap_remove(place);
    drop(port);
    end.port(given_back.from).left.push_back(given_back.token.addr());
}

unsafe extern "C" fn describe(_: *mut c_void) -> *const c_char {
    c"nothing fails here".as_ptr()
}

unsafe extern "C" fn abandon(_: *mut c_void) {}

/// `turbidite_transport`, as declared by a library that only includes the header.
#[repr(C)]
struct Table {
    struct_size: u32,
    abi_version: u32,
    context: *mut c_void,
    rank: u32,
    ranks: u32,
    nodes: *const u32,
    send: unsafe extern "C" fn(*mut c_void, u32, i32, *const c_void, usize, *mut c_void) -> i32,
    completed: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    poll: unsafe extern "C" fn(*mut c_void, i32, *mut *const c_void, *mut usize) -> i32,
    release: unsafe extern "C" fn(*mut c_void, *const c_void),
    describe: unsafe extern "C" fn(*mut c_void) -> *const c_char,
    abandon: unsafe extern "C" fn(*mut c_void),
}

/// Returns the transport table of a rank. `nodes` contains the node of each rank.
fn table(end: &End, nodes: &[u32; RANKS as usize]) -> Table {
    Table {
        struct_size: size_of::<Table>() as u32,
        abi_version: turbidite_abi_version(),
        context: std::ptr::from_ref(end).cast_mut().cast(),
        rank: end.rank,
        ranks: RANKS,
        nodes: nodes.as_ptr(),
        send,
        completed,
        poll,
        release,
        describe,
        abandon,
    }
}

/// Runs a program on every rank. Each rank has its own thread.
fn on_all_ranks(program: impl Fn(u32, *const TransportTable) + Sync) {
    let wire = Arc::new(Wire::default());
    std::thread::scope(|scope| {
        for rank in 0..RANKS {
            let (wire, program) = (Arc::clone(&wire), &program);
            scope.spawn(move || {
                let end = End { wire, rank };
                let table = table(&end, &[0, 1]);
                program(rank, (&raw const table).cast());
            });
        }
    });
}

#[test]
fn ranks_over_a_transport_that_lends_memory() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    on_all_ranks(|rank, transport| {
        // SAFETY: the functions above fulfil the contract. The endpoint and the table outlive the handle.
        let (topology, foreign) = unsafe { ((*transport).topology().unwrap(), (*transport).resolve(CREDIT).unwrap()) };
        let mut options = options(RANKS);
        options.topology = topology;
        let host = Arc::new(Process::new());
        let job = RankJob::open_on(host, Arc::clone(&storage), "ds", schema(), options, rank, Box::new(foreign));
        let dataset = handle(job.unwrap());
        let ids: Vec<u64> = (0..300).filter(|id| id % u64::from(RANKS) == u64::from(rank)).collect();
        let energies: Vec<f32> = ids.iter().map(|&id| record(id).0).collect();
        let views = views(energies.as_ptr().cast(), 4, ids.as_ptr().cast(), 8);
        // SAFETY: the handle is open and the views have 150 rows.
        unsafe {
            assert_eq!(turbidite_begin_epoch(dataset, 0), OK, "{}", said());
            assert_eq!(turbidite_append(dataset, views.as_ptr(), 2, 150), OK, "{}", said());
            assert_eq!(turbidite_end_epoch_start(dataset), OK, "{}", said());
            assert_eq!(turbidite_end_epoch_wait(dataset, null_mut()), OK, "{}", said());
            assert_eq!(turbidite_close(dataset), OK, "{}", said());
        }
    });
    assert_eq!(answer(&storage, null()), (0..300).map(record).collect::<Vec<_>>());
}

#[test]
fn ranks_that_refuse_to_open_tell_each_other() {
    on_all_ranks(|_, transport| {
        let mut dataset = std::ptr::dangling_mut::<CDataset>();
        // SAFETY: the number of columns is zero, and the other arguments are as the header requires.
        let status = unsafe {
            turbidite_open_abi2(c"ds".as_ptr(), null(), 0, c"energy".as_ptr(), null(), transport, &raw mut dataset)
        };
        assert_eq!(status, USAGE);
        assert!(dataset.is_null() && said().contains("columns"), "{}", said());
    });
}
