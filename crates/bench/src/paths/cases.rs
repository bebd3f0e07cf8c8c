//! Which cells and scenes are measured, and what `--only` chooses: cells by name, in the list or not, with or without a
//! load; loads; scenes.

use serde::Serialize;

use super::cell::Cell;
use crate::Error;

/// The cells that are measured when nothing else is asked for.
const HEADLINES: [Cell; 10] = [
    Cell::new(100.0, 100.0, 0.0, 1.0),
    Cell::new(100.0, 100.0, 1.0, 1.0),
    Cell::new(100.0, 100.0, 3.0, 1.0),
    Cell::new(100.0, 100.0, 5.0, 1.0),
    Cell::new(100.0, 100.0, 10.0, 1.0),
    Cell::new(100.0, 20.0, 1.0, 0.25),
    Cell::new(100.0, 20.0, 0.0, 4.0),
    Cell::new(20.0, 250.0, 0.1, 1.0),
    Cell::new(20.0, 250.0, 3.0, 1.0),
    Cell::new(20.0, 100.0, 5.0, 4.0),
];

/// The one of them over which IP packets, TUIC and the rivals' UDP are measured too: all would take longer than people
/// wait.
const DETAILED: Cell = HEADLINES[1];

/// Every combination of these is a cell of `--all`.
const RATES_MBIT: [f64; 2] = [100.0, 20.0];
const ROUND_TRIPS_MS: [f64; 3] = [20.0, 100.0, 250.0];
const LOSSES_PERCENT: [f64; 6] = [0.0, 0.1, 1.0, 3.0, 5.0, 10.0];
const QUEUES_PRODUCTS: [f64; 3] = [0.25, 1.0, 4.0];

/// What is sent over a cell in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Load {
    /// One TCP stream through a forward, client to server.
    TcpUp,
    /// And back.
    TcpDown,
    /// 30 % of the link in datagrams through a forward.
    UdpUp,
    /// And back.
    UdpDown,
    /// One TCP stream in IP packets.
    L3Up,
    /// And back.
    L3Down,
}

/// All of them, in the order of each round and of the table.
const LOADS: [Load; 6] = [
    Load::TcpUp,
    Load::TcpDown,
    Load::UdpUp,
    Load::UdpDown,
    Load::L3Up,
    Load::L3Down,
];

/// What needs a set-up of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Scene {
    /// Beside a TCP flow with CUBIC.
    FairCubic,
    /// Beside one with BBR.
    FairBbr,
    /// Two clients on one link.
    Jain,
    /// What a TCP stream does to the queue, and to datagrams in the same tunnel.
    Delay,
    /// The beginning of a TCP stream.
    FirstSecond,
}

const SCENES: [Scene; 5] = [
    Scene::FairCubic,
    Scene::FairBbr,
    Scene::Jain,
    Scene::Delay,
    Scene::FirstSecond,
];

/// What is measured with one set-up.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Case {
    /// Loads over a link.
    Cell {
        /// The link.
        cell: Cell,
        /// In this order, each at most once.
        loads: Vec<Load>,
        /// As in the list.
        name: String,
    },
    /// A scene.
    Scene(Scene),
}

impl Load {
    /// Its name in `--only` and in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::TcpUp => "tcp-up",
            Self::TcpDown => "tcp-down",
            Self::UdpUp => "udp-up",
            Self::UdpDown => "udp-down",
            Self::L3Up => "l3-up",
            Self::L3Down => "l3-down",
        }
    }

    /// Whether the client sends.
    pub(super) fn is_up(self) -> bool {
        matches!(self, Self::TcpUp | Self::UdpUp | Self::L3Up)
    }

    /// Whether it is made of datagrams.
    pub(super) fn is_udp(self) -> bool {
        matches!(self, Self::UdpUp | Self::UdpDown)
    }

    /// Whether it crosses as IP packets.
    pub(super) fn is_layer3(self) -> bool {
        matches!(self, Self::L3Up | Self::L3Down)
    }
}

impl Scene {
    /// Its name in `--only` and in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::FairCubic => "fair-cubic",
            Self::FairBbr => "fair-bbr",
            Self::Jain => "jain",
            Self::Delay => "delay",
            Self::FirstSecond => "first-second",
        }
    }
}

impl Case {
    fn cell(cell: Cell, loads: Vec<Load>) -> Self {
        let name = cell.to_string();
        Self::Cell { cell, loads, name }
    }
}

impl crate::matrix::Case for Case {
    fn name(&self) -> &str {
        match self {
            Self::Cell { name, .. } => name,
            Self::Scene(scene) => scene.name(),
        }
    }
}

/// What to measure: the headlines and all scenes, every cell instead of the headlines, or what `only` names.
///
/// # Errors
/// A selector that names nothing.
pub(super) fn choose(only: &[String], all: bool) -> Result<Vec<Case>, Error> {
    let listed = if all { every_cell() } else { HEADLINES.to_vec() };
    let usual = |cell: Cell| {
        let is_detailed = is_detailed(&cell);
        let loads = LOADS.into_iter();
        let wanted = loads.filter(|load| is_detailed || !load.is_layer3());
        Case::cell(cell, wanted.collect())
    };
    if only.is_empty() {
        let scenes = SCENES.map(Case::Scene);
        return Ok(listed.into_iter().map(usual).chain(scenes).collect());
    }
    let mut chosen = Vec::new();
    for selector in only.iter().flat_map(|text| selectors(text)) {
        for case in select(&selector, &listed)? {
            add(&mut chosen, case);
        }
    }
    Ok(chosen)
}

/// Whether a headline is measured with everything.
pub(super) fn is_detailed(cell: &Cell) -> bool {
    *cell == DETAILED
}

fn every_cell() -> Vec<Cell> {
    let mut cells = Vec::new();
    for rate in RATES_MBIT {
        for round_trip in ROUND_TRIPS_MS {
            for loss in LOSSES_PERCENT {
                cells.extend(QUEUES_PRODUCTS.map(|queue| Cell::new(rate, round_trip, loss, queue)));
            }
        }
    }
    cells
}

/// What one selector means.
fn select(selector: &str, listed: &[Cell]) -> Result<Vec<Case>, Error> {
    let loads_of = |name: &str| -> Vec<Load> {
        LOADS
            .into_iter()
            .filter(|load| load.name().starts_with(name))
            .collect()
    };
    let refused = |reason: &str| Error::Usage(format!("--only {selector}: {reason}"));
    if let Some((cell, load)) = selector.split_once(':') {
        let loads = loads_of(load);
        if loads.is_empty() {
            return Err(refused(&format!("there is no load \"{load}\"; {}", known())));
        }
        let cell = cell.parse().map_err(|reason: String| refused(&reason))?;
        return Ok(vec![Case::cell(cell, loads)]);
    }
    if selector.contains('x') {
        let cell = selector.parse().map_err(|reason: String| refused(&reason))?;
        return Ok(vec![Case::cell(cell, LOADS.to_vec())]);
    }
    let loads = loads_of(selector);
    let scenes = SCENES
        .into_iter()
        .filter(|scene| scene.name().starts_with(selector));
    let mut cases: Vec<Case> = scenes.map(Case::Scene).collect();
    if !loads.is_empty() {
        cases.extend(listed.iter().map(|cell| Case::cell(*cell, loads.clone())));
    }
    if cases.is_empty() {
        return Err(refused(&format!("it names nothing; {}", known())));
    }
    Ok(cases)
}

fn known() -> String {
    let loads = LOADS.map(Load::name).join(" ");
    let scenes = SCENES.map(Scene::name).join(" ");
    format!("there are cells (100x100x1x1, 100x100x1x1:tcp), loads ({loads}) and scenes ({scenes})")
}

/// Adds a case, or its loads to the same cell.
fn add(chosen: &mut Vec<Case>, case: Case) {
    let same = |known: &&mut Case| match (&**known, &case) {
        (Case::Cell { cell: known, .. }, Case::Cell { cell, .. }) => known == cell,
        (known, case) => known == case,
    };
    match (chosen.iter_mut().find(same), case) {
        (Some(Case::Cell { loads: known, .. }), Case::Cell { loads, .. }) => {
            known.extend(loads);
            known.sort_unstable();
            known.dedup();
        }
        (Some(_), _) => {}
        (None, case) => chosen.push(case),
    }
}

/// Splits at commas outside of braces, and writes out what braces abbreviate.
fn selectors(text: &str) -> Vec<String> {
    let mut depth = 0_u32;
    let parts = text.split(|character| {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    });
    parts
        .filter(|part| !part.is_empty())
        .flat_map(written_out)
        .collect()
}

/// `a{b,c}d` is `abd` and `acd`.
fn written_out(text: &str) -> Vec<String> {
    let parts = text
        .split_once('{')
        .and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    let Some((before, (choices, after))) = parts else {
        return vec![text.to_owned()];
    };
    choices
        .split(',')
        .flat_map(|choice| written_out(&format!("{before}{choice}{after}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Case as _;

    fn names(only: &[&str], all: bool) -> Vec<String> {
        let only: Vec<String> = only.iter().map(ToString::to_string).collect();
        let cases = choose(&only, all).unwrap();
        let loads = |case: &Case| match case {
            Case::Cell { loads, .. } => format!(":{}", loads.len()),
            Case::Scene(_) => String::new(),
        };
        cases
            .iter()
            .map(|case| format!("{}{}", case.name(), loads(case)))
            .collect()
    }

    #[test]
    fn ten_headlines_and_the_scenes_are_the_default_and_all_is_every_combination() {
        let names_by_default = names(&[], false);
        assert_eq!(names_by_default.len(), 15);
        assert_eq!(
            [&names_by_default[1], &names_by_default[2], &names_by_default[14]],
            ["100x100x1x1:6", "100x100x3x1:4", "first-second"]
        );
        assert_eq!(names(&[], true).len(), 2 * 3 * 6 * 3 + 5);
    }

    #[test]
    fn selectors_name_cells_loads_and_scenes_and_braces_abbreviate() {
        assert_eq!(
            names(&["50x80x2x1:tcp-up,jain", "50x80x2x1:tcp-down"], false),
            ["50x80x2x1:2", "jain"]
        );
        assert_eq!(
            names(&["100x100x{0,1}x{1,4}"], false),
            ["100x100x0x1:6", "100x100x0x4:6", "100x100x1x1:6", "100x100x1x4:6"]
        );
        assert_eq!(names(&["udp"], false).len(), 10);
        assert_eq!(names(&["fair"], false), ["fair-cubic", "fair-bbr"]);
    }

    #[test]
    fn a_selector_that_names_nothing_is_refused_with_what_there_is() {
        for selector in ["sctp", "100x100x1x1:sctp", "100x100"] {
            let error = choose(&[selector.to_owned()], false).unwrap_err().to_string();
            assert!(
                error.starts_with("--only ") && error.contains("100x100x1x"),
                "{error}"
            );
        }
    }
}
