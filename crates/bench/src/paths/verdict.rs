//! What a result over a link must reach.

use super::cases::Load;
use super::cell::Cell;
use crate::check::{Bound, Check};

/// TCP through a forward reaches this share of the better of Hysteria2 and no tunnel.
const OF_BEST_MIN: f64 = 0.95;

/// And this share of the link, where that loses no more than [`LOSS_PERCENT_TCP_MAX`].
const OF_LINK_MIN: f64 = 0.75;

/// Beyond it the share of the link is told only.
const LOSS_PERCENT_TCP_MAX: f64 = 5.0;

/// Loss of datagrams beyond the link's own, in percentage points.
const LOSS_POINTS_MAX: f64 = 0.5;

/// TCP in IP packets reaches this share of the same without a tunnel.
const OF_DIRECT_MIN: f64 = 0.95;

/// Medians of one load over one link that verdicts are made of, in bits per second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    /// Gramway.
    pub(super) gramway: Option<f64>,
    /// No tunnel.
    pub(super) direct: Option<f64>,
    /// Hysteria2.
    pub(super) hysteria2: Option<f64>,
    /// Gramway's loss beyond the link's own, as a fraction; UDP only.
    pub(super) loss_beyond: Option<f64>,
}

/// The checks of a load over a link; none where Gramway was not measured.
pub(super) fn checks(cell: &Cell, load: Load, figures: &Figures) -> Vec<Check> {
    let Some(gramway) = figures.gramway else {
        return Vec::new();
    };
    if load.is_udp() {
        let points = figures.loss_beyond.unwrap_or(f64::NAN) * 100.0;
        return vec![Check::new("points lost", points, Bound::AtMost(LOSS_POINTS_MAX))];
    }
    let of = |other: f64| gramway / other.max(1.0);
    let direct = figures
        .direct
        .map(|direct| Check::new("of direct", of(direct), Bound::AtLeast(OF_DIRECT_MIN)));
    if load.is_layer3() {
        return direct.into_iter().collect();
    }
    let rivals = [figures.direct, figures.hysteria2].into_iter().flatten();
    let best = rivals.reduce(f64::max);
    let of_best = best.map(|best| Check::new("of best", of(best), Bound::AtLeast(OF_BEST_MIN)));
    let must = if cell.loss_percent <= LOSS_PERCENT_TCP_MAX {
        Bound::AtLeast(OF_LINK_MIN)
    } else {
        Bound::Free
    };
    let of_link = Check::new("of link", of(cell.rate_bits_per_second()), must);
    of_best.into_iter().chain([of_link]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: Cell = Cell::new(100.0, 100.0, 5.0, 1.0);

    fn told(cell: &Cell, load: Load, figures: &Figures) -> Vec<String> {
        checks(cell, load, figures).iter().map(Check::to_string).collect()
    }

    #[test]
    fn tcp_is_held_against_the_better_of_direct_and_hysteria2_and_against_the_link() {
        let figures = Figures {
            gramway: Some(76e6),
            direct: Some(60e6),
            hysteria2: Some(82e6),
            loss_beyond: None,
        };
        assert_eq!(
            told(&CELL, Load::TcpUp, &figures),
            [
                "0.93 of best (must: >= 0.95) MISSED",
                "0.76 of link (must: >= 0.75)"
            ]
        );
        let lossy = Cell {
            loss_percent: 10.0,
            ..CELL
        };
        assert_eq!(told(&lossy, Load::TcpDown, &figures)[1], "0.76 of link");
        assert_eq!(
            told(&CELL, Load::L3Up, &figures),
            ["1.27 of direct (must: >= 0.95)"]
        );
    }

    #[test]
    fn datagrams_may_lose_half_a_point_more_than_the_link() {
        let figures = |loss| Figures {
            gramway: Some(30e6),
            loss_beyond: loss,
            ..Figures::default()
        };
        let holds = |loss| checks(&CELL, Load::UdpUp, &figures(loss))[0].holds();
        assert_eq!(
            [holds(Some(0.004)), holds(Some(0.006)), holds(None)],
            [true, false, false]
        );
        assert!(checks(&CELL, Load::UdpUp, &Figures::default()).is_empty());
    }
}
