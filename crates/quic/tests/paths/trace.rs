//! What the first party's controller does, tick by tick, where `GRAMWAY_TRACE` is set.

use std::time::Duration;

use crate::world::World;

const TICK: Duration = Duration::from_millis(50);

/// Lets `duration` pass.
pub(crate) fn drive(world: &mut World, duration: Duration) {
    if std::env::var_os("GRAMWAY_TRACE").is_none() {
        world.drive(duration);
        return;
    }
    let end = world.now + duration;
    while world.now < end {
        let before = world.parties[0].delivered();
        let tick = TICK.min(end - world.now);
        world.drive(tick);
        let rate = (world.parties[0].delivered() - before) as f64 * 8e-6 / tick.as_secs_f64();
        let Some(report) = world.parties[0].report() else {
            continue;
        };
        let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
        println!(
            "{:6.2} s {rate:6.1} Mbit/s {:12} path {:6.1} Mbit/s, {:5.1} ms, queue {:5.1} ms, loss {:.3}; window {:8} in flight {:8} lost {} cuts {}",
            (world.now - world.start).as_secs_f64(),
            report.path.phase.name(),
            report.path.bandwidth_bytes_per_second as f64 * 8e-6,
            millis(report.path.base_round_trip),
            millis(report.path.queueing_delay),
            f64::from(report.path.random_loss_per_million) * 1e-6,
            report.congestion_window,
            report.in_flight,
            report.counters.packets_lost,
            report.counters.window_cuts,
        );
    }
}
