//! The beginning of MPI: ranks compare their configurations.

use crate::notices::complain;
use crate::process::{self, Standing};
use crate::session::session;
use crate::world::World;

/// What ranks have to have in common where it is no configuration's fingerprint, in the order in which they are told.
const UNSET: i64 = -1;
const BROKEN: i64 = -2;

/// Begins indexing together with all ranks, where all have the same configuration. All ranks call it together, when MPI
/// has begun; one of them says what is wrong with the configuration.
pub(crate) fn mpi_started(world: World) {
    let rank = i64::from(world.rank());
    let state = match (process::standing(), session()) {
        (Standing::Ready, Some(session)) => session.fingerprint(),
        (Standing::Broken, _) => BROKEN,
        _ => UNSET,
    };
    let only_if = |condition: bool| if condition { rank } else { i64::MAX };
    let mut values = [state, -state, only_if(state >= 0), only_if(state == BROKEN)];
    let can_reach = world.minimum(&mut values);
    let [least, most, first_ready, first_broken] = values;
    let agrees = can_reach && least == -most;
    if can_reach && first_broken == rank {
        process::say_broken();
    }
    // Those without a configuration speak only where no other rank has one.
    let speaks = !can_reach || first_ready == rank || (first_ready == i64::MAX && rank == 0);
    if !agrees && speaks {
        complain("ranks have different configurations; nothing is indexed");
    } else if agrees && state == UNSET && rank == 0 {
        complain(
            "TURBIDITE_CONFIG is not set; nothing is indexed. It is the path of a configuration, docs/simulation.md",
        );
    }
    process::keep_broken_unsaid();
    let Some(mut session) = session() else { return };
    if agrees { session.join(world) } else { session.part(world) }
}
