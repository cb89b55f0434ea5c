//! Compares the ranks' configurations when MPI has been initialised.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::notices::complain;
use crate::process::{self, ConfigurationState};
use crate::role;
use crate::session::session;
use crate::world::World;

/// The value compared in place of a fingerprint if no configuration is given. Fingerprints are not negative.
const UNSET: i64 = -1;

/// The value compared in place of a fingerprint if the configuration is invalid.
const BROKEN: i64 = -2;

/// The value compared in place of a fingerprint if another job's process started this one.
const CHILD: i64 = -3;

/// Begins indexing if all ranks have the same configuration. One rank reports an invalid configuration. Called when MPI
/// has been initialised. Collective.
pub(crate) fn mpi_started(world: World) {
    let rank = i64::from(world.rank());
    let state = match (process::state(), session()) {
        (ConfigurationState::Ready, Some(_)) if role::is_child() => CHILD,
        (ConfigurationState::Ready, Some(session)) => session.fingerprint(),
        (ConfigurationState::Broken, _) => BROKEN,
        _ => UNSET,
    };
    // Any number does that other jobs of this user are not likely to choose.
    let job = i64::from(std::process::id()) << 32
        | i64::from(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos()));
    let only_if = |condition: bool| if condition { rank } else { i64::MAX };
    let mut values = [state, -state, only_if(state >= 0), only_if(state == BROKEN), job];
    let can_reach = world.minimum(&mut values);
    let [least, most, first_ready, first_broken, job] = values;
    let agrees = can_reach && least == -most;
    if can_reach && first_broken == rank {
        process::say_broken();
    }
    // A rank without a configuration reports the difference only if no rank has one.
    let speaks = !can_reach || first_ready == rank || (first_ready == i64::MAX && rank == 0);
    if !agrees && speaks {
        complain("ranks have different configurations; nothing is indexed");
    } else if agrees && state == UNSET && rank == 0 {
        complain(
            "TURBIDITE_CONFIG is not set; nothing is indexed. Set it to the path of a configuration (docs/simulation.md)",
        );
    }
    process::keep_broken_unsaid();
    let Some(mut session) = session() else { return };
    if agrees && state >= 0 {
        role::claim();
        session.join(world, job as u64);
    } else {
        session.part(world);
    }
}
