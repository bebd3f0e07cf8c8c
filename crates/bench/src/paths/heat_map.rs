//! Shares of the link as a picture: a row for each cell, a panel for each load, a column for each contestant. SVG, written by
//! hand; the page's own style sheet has light and dark colours, and every box says its number, for those who see no colours.

use std::fmt::Write as _;

use super::cases::Load;
use super::contestant::{ALL, Contestant};
use super::{CaseResults, Row, rate};

/// Pixels of a box.
const BOX: [usize; 2] = [76, 26];

/// Between boxes, and between panels.
const GAP: usize = 2;
const PANEL_GAP: usize = 22;

/// Pixels before the first box: names of cells, and titles.
const LEFT: usize = 132;
const TOP: usize = 100;

/// Pixels around everything, and below for the scale.
const MARGIN: usize = 20;
const BOTTOM: usize = 52;

/// Shares from which each colour holds, the darkest last.
const STEPS: [f64; 7] = [0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9];

/// Loads with a panel, and its title.
const PANELS: [(Load, &str); 4] = [
    (Load::TcpUp, "TCP forward, up"),
    (Load::TcpDown, "TCP forward, down"),
    (Load::L3Up, "TCP in IP packets, up"),
    (Load::L3Down, "TCP in IP packets, down"),
];

const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#1c2430}
.title{font-size:15px;font-weight:600}.head{font-weight:600}.quiet{fill:#5c6675}.middle{text-anchor:middle}.end{text-anchor:end}
.page{fill:#ffffff}.none{fill:#eef0f3}
.s0{fill:#f4f1de}.s1{fill:#dcead0}.s2{fill:#b5d9c3}.s3{fill:#82c0b4}.s4{fill:#4a9fa5}.s5{fill:#2a7790}.s6{fill:#1d4f73}
.t4,.t5,.t6{fill:#ffffff}
@media (prefers-color-scheme:dark){text{fill:#e4e8ee}.quiet{fill:#9aa5b4}.page{fill:#14181e}.none{fill:#232a33}
.s0{fill:#2b2a2f}.s1{fill:#26363f}.s2{fill:#22495a}.s3{fill:#226176}.s4{fill:#2f7f8f}.s5{fill:#55a8a6}.s6{fill:#a4dcc0}
.t0,.t1,.t2,.t3,.t4{fill:#ffffff}.t5,.t6{fill:#10151b}}";

/// The picture of what was measured so far.
pub(super) fn svg(cases: &[CaseResults]) -> String {
    let rows: Vec<&Row> = cases.iter().flat_map(|case| &case.rows).collect();
    let mut names: Vec<String> = Vec::new();
    for row in rows.iter().filter(|row| !row.load.is_udp()) {
        let name = row.cell.to_string();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut body = String::new();
    let mut left = LEFT;
    for (load, title) in PANELS {
        let of_load: Vec<&Row> = rows.iter().copied().filter(|row| row.load == load).collect();
        let ran = |contestant: &Contestant| of_load.iter().any(|row| row.runs.contains_key(contestant));
        let columns: Vec<Contestant> = ALL.into_iter().filter(ran).collect();
        if columns.is_empty() {
            continue;
        }
        text(&mut body, "head", left, TOP - 26, title);
        for (number, contestant) in columns.iter().enumerate() {
            let x = left + number * (BOX[0] + GAP);
            text(
                &mut body,
                "quiet middle",
                x + BOX[0] / 2,
                TOP - 8,
                contestant.name(),
            );
            for (line, name) in names.iter().enumerate() {
                let row = of_load.iter().find(|row| row.cell.to_string() == *name);
                let share = row
                    .and_then(|row| Some(rate(row.runs.get(contestant)?) / row.cell.rate_bits_per_second()));
                cell(&mut body, x, TOP + line * (BOX[1] + GAP), share);
            }
        }
        left += columns.len() * (BOX[0] + GAP) + PANEL_GAP;
    }
    for (line, name) in names.iter().enumerate() {
        text(
            &mut body,
            "end",
            LEFT - 10,
            TOP + line * (BOX[1] + GAP) + 17,
            name,
        );
    }
    let foot = TOP + names.len() * (BOX[1] + GAP) + 16;
    scale(&mut body, foot);
    let width = left.saturating_sub(PANEL_GAP).max(LEFT + 460) + MARGIN;
    let height = foot + BOTTOM - 16;
    let mut page = String::new();
    let _ = write!(
        page,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\
         \n<title>Share of the link that TCP reaches</title>\n<style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    text(
        &mut page,
        "title",
        MARGIN,
        28,
        "Share of the link that TCP reaches",
    );
    text(
        &mut page,
        "quiet",
        MARGIN,
        46,
        "rows: Mbit/s x round trip in ms x loss in % x queue in bandwidth-delay products",
    );
    page.push_str(&body);
    page.push_str("</svg>\n");
    page
}

/// The colours and their shares.
fn scale(body: &mut String, top: usize) {
    for (step, from) in STEPS.iter().enumerate() {
        let x = LEFT + step * 60;
        let _ = writeln!(
            body,
            "<rect class=\"s{step}\" x=\"{x}\" y=\"{top}\" width=\"58\" height=\"10\" rx=\"2\"/>"
        );
        text(body, "quiet", x, top + 25, &format!("{from:.2}"));
    }
    text(body, "quiet end", LEFT - 10, top + 10, "share");
}

fn cell(body: &mut String, x: usize, y: usize, share: Option<f64>) {
    let [width, height] = BOX;
    let step = share.map(step_of);
    let class = step.map_or_else(|| "none".to_owned(), |step| format!("s{step}"));
    let _ = writeln!(
        body,
        "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"3\"/>"
    );
    let (class, label) = match (share, step) {
        (Some(share), Some(step)) => (format!("middle t{step}"), format!("{share:.2}")),
        _ => ("middle quiet".to_owned(), "-".to_owned()),
    };
    text(body, &class, x + width / 2, y + 17, &label);
}

/// The last step that a share reaches.
fn step_of(share: f64) -> usize {
    STEPS.iter().rposition(|from| share >= *from).unwrap_or(0)
}

/// Text of our own, which needs no escapes.
fn text(body: &mut String, class: &str, x: usize, y: usize, text: &str) {
    let _ = writeln!(body, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::cell::Cell;
    use super::super::measure::Run;
    use super::*;

    #[test]
    fn every_measured_share_has_a_box_and_a_number_and_a_gap_has_a_dash() {
        let run = |megabits: f64| {
            vec![Run {
                bits_per_second: megabits * 1e6,
                ..Run::default()
            }]
        };
        let row = |loss, runs: Vec<(Contestant, Vec<Run>)>| Row {
            cell: Cell::new(100.0, 100.0, loss, 1.0),
            load: Load::TcpUp,
            seconds: 1,
            runs: runs.into_iter().collect::<BTreeMap<_, _>>(),
            checks: Vec::new(),
        };
        let full = vec![(Contestant::Direct, run(94.0)), (Contestant::Gramway, run(31.0))];
        let rows = vec![row(0.0, full), row(1.0, vec![(Contestant::Gramway, run(5.0))])];
        let picture = svg(&[CaseResults {
            rows,
            ..CaseResults::default()
        }]);
        let boxes = format!("height=\"{}\"", BOX[1]);
        assert_eq!(picture.matches(&boxes).count(), 4, "{picture}");
        for part in [
            "class=\"s6\"",
            ">0.94<",
            ">0.31<",
            ">0.05<",
            ">-<",
            ">100x100x1x1<",
        ] {
            assert!(picture.contains(part), "{part} is missing in {picture}");
        }
        assert!(!picture.contains(">hysteria2<"));
        assert_eq!(picture.matches("<svg").count(), picture.matches("</svg>").count());
    }

    #[test]
    fn shares_have_the_colour_of_the_step_that_they_reach() {
        assert_eq!(
            [-1.0, 0.0, 0.149, 0.15, 0.95, 2.0].map(step_of),
            [0, 0, 0, 1, 6, 6]
        );
    }
}
