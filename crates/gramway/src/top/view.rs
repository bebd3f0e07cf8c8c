//! Draws the process that is shown.

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Paragraph, Row, Sparkline, Table, Wrap};
use serde_json::Value;

use super::history::{History, drops, number};
use crate::units;

/// The only colour beside those of the terminal.
const ACCENT: Color = Color::Cyan;

/// Draws everything.
pub(super) fn draw(frame: &mut Frame, history: &History) {
    let Some(now) = history.shown() else {
        let text = "no server or client answers with this state directory; q quits";
        frame.render_widget(Paragraph::new(text), frame.area());
        return;
    };
    let warnings = warnings(now);
    let [head, told, rates, numbers, parties, below, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(warnings.len() as u16),
        Constraint::Length(6),
        Constraint::Length(2),
        Constraint::Fill(3),
        Constraint::Fill(2),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(headline(now)), head);
    frame.render_widget(Paragraph::new(warnings), told);
    draw_rates(frame, rates, history, now["role"] == "server");
    frame.render_widget(Paragraph::new(counts(now)), numbers);
    if now["role"] == "server" {
        frame.render_widget(users(history, now), parties);
    } else {
        frame.render_widget(stripes(now), parties);
    }
    let [left, right] = Layout::horizontal([Constraint::Fill(2), Constraint::Fill(3)]).areas(below);
    frame.render_widget(drop_table(now), left);
    draw_events(frame, right, now);
    let (place, count) = history.place();
    let more = match count {
        1 => String::new(),
        _ => format!("   tab: next process ({place} of {count})"),
    };
    frame.render_widget(Paragraph::new(format!("q: quit{more}")).dim(), keys);
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

/// `12.3 Mbit/s`.
fn rate(bits: u64) -> String {
    let amount = units::bytes(bits);
    format!("{}bit/s", amount.trim_end_matches('B'))
}

fn headline(now: &Value) -> Line<'_> {
    let uptime = units::span(now["uptime_seconds"].as_f64().unwrap_or(0.0));
    Line::from(vec![
        "Gramway ".bold(),
        Span::styled(
            format!("{}, {}", text(&now["role"]), text(&now["state"])),
            Style::new().fg(ACCENT).bold(),
        ),
        format!(
            "   {}   up {uptime}   process {}",
            text(&now["local"]),
            now["pid"]
        )
        .dim(),
    ])
}

/// At most three: the rest has the room.
fn warnings(now: &Value) -> Vec<Line<'_>> {
    let warnings = now["warnings"].as_array().into_iter().flatten();
    warnings
        .filter(|warning| warning["reason"].is_null())
        .take(3)
        .map(|warning| {
            let what = format!("! {}. ", text(&warning["what"]));
            Line::from(vec![what.fg(ACCENT), text(&warning["advice"]).into()])
        })
        .collect()
}

fn draw_rates(frame: &mut Frame, area: Rect, history: &History, is_server: bool) {
    let [from, to] = match is_server {
        true => ["From clients", "To clients"],
        false => ["From the server", "To the server"],
    };
    let areas = Layout::horizontal([Constraint::Fill(2), Constraint::Fill(2), Constraint::Fill(1)]);
    let areas: [Rect; 3] = areas.areas(area);
    let last = |values: &VecDeque<u64>| values.back().copied().unwrap_or(0);
    let charts = [
        (from, &history.received, rate(last(&history.received))),
        (to, &history.sent, rate(last(&history.sent))),
        (
            "Dropped",
            &history.dropped,
            format!("{}/s", units::count(last(&history.dropped))),
        ),
    ];
    for (area, (name, values, last)) in areas.into_iter().zip(charts) {
        let block = frame_of(name).title(Line::from(format!(" {last} ").bold()).right_aligned());
        let room = usize::from(area.width.saturating_sub(2));
        let visible = values.iter().skip(values.len().saturating_sub(room)).copied();
        let chart = Sparkline::default()
            .data(visible.collect::<Vec<_>>())
            .style(Style::new().fg(ACCENT))
            .block(block);
        frame.render_widget(chart, area);
    }
}

fn frame_of(name: &str) -> Block<'_> {
    Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(Style::new().dim())
        .title(Span::styled(format!(" {name} "), Style::new().bold()))
}

fn counts(now: &Value) -> Line<'static> {
    let open = |what: &str| units::count(number(&now[what]["open"]));
    let quic = &now["quic"];
    let (sent, lost) = (number(&quic["packets_sent"]), number(&quic["packets_lost"]));
    let part = if sent == 0 {
        0.0
    } else {
        lost as f64 * 100.0 / sent as f64
    };
    let relayed = match number(&now["rendezvous"]["relayed_bytes"]) {
        0 => String::new(),
        relayed => format!("   {} relayed to peers", units::bytes(relayed)),
    };
    Line::from(format!(
        " {} connections   {} UDP   {} TCP   {part:.2} % lost   {} datagrams in, {} out{relayed}",
        open("connections"),
        open("udp_sessions"),
        open("tcp"),
        units::count(number(&now["ingress"]["sent"])),
        units::count(number(&now["egress"]["sent"])),
    ))
}

/// Rows below a head, the first columns left-aligned, the others right-aligned.
fn table<'a>(
    name: &'a str,
    head: &[&'static str],
    widths: &[u16],
    left: usize,
    rows: impl Iterator<Item = Vec<String>>,
) -> Table<'a> {
    let aligned = move |texts: Vec<String>| {
        let cells = texts.into_iter().enumerate().map(move |(index, text)| {
            let line = Line::from(text);
            if index < left { line } else { line.right_aligned() }
        });
        Row::new(cells)
    };
    let head = head.iter().map(|text| (*text).to_owned()).collect();
    Table::new(
        rows.map(aligned),
        widths.iter().map(|width| Constraint::Min(*width)),
    )
    .header(aligned(head).dim())
    .column_spacing(1)
    .block(frame_of(name))
}

fn users<'a>(history: &History, now: &Value) -> Table<'a> {
    let users = now["users"].as_object().into_iter().flatten();
    let mut users: Vec<_> = users.map(|(id, user)| (history.user_rate(id), user)).collect();
    let relays = users.iter().any(|(_, user)| number(&user["relayed_bytes"]) > 0);
    // Those who move most come first.
    users.sort_by_key(|(rate, user)| (std::cmp::Reverse(*rate), text(&user["name"]).to_owned()));
    let rows = users.into_iter().map(|(moved, user)| {
        let used = units::bytes(user["used_bytes"].as_u64().unwrap_or(number(&user["bytes"])));
        let quota = user["quota_bytes"].as_u64();
        let quota = quota.map(|quota| format!(" of {}/{}", units::bytes(quota), text(&user["quota_period"])));
        let mut row = vec![
            user["name"].as_str().unwrap_or("owner").to_owned(),
            user["excluded"].as_str().unwrap_or("may use it").to_owned(),
            number(&user["connections"]).to_string(),
            rate(moved),
            used + &quota.unwrap_or_default(),
            text(&user["expires"]).chars().take(10).collect(),
        ];
        if relays {
            row.insert(5, units::bytes(number(&user["relayed_bytes"])));
        }
        row
    });
    let mut columns = vec![
        ("name", 10),
        ("state", 14),
        ("conn.", 5),
        ("at present", 12),
        ("used", 23),
        ("until", 10),
    ];
    if relays {
        // Nobody looks for it at a server that relays nothing.
        columns.insert(5, ("relayed", 8));
    }
    let (head, widths): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    table("Users", &head, &widths, 2, rows)
}

fn stripes<'a>(now: &Value) -> Table<'a> {
    let shards = now["shards"].as_array().cloned().unwrap_or_default();
    let rows = shards.into_iter().map(|shard| {
        let stripe = &shard["stripe"];
        let trip = stripe["rtt_ms"].as_f64();
        let carrier = match shard["carrier"]["kind"].as_str() {
            Some("tcp") => "TCP shape",
            Some(_) => "UDP",
            None => "-",
        };
        vec![
            format!("{} {}", number(&shard["index"]) + 1, text(&shard["state"])),
            carrier.to_owned(),
            trip.map_or_else(|| "-".to_owned(), |trip| format!("{trip:.2} ms")),
            stripe["path_mtu"]
                .as_u64()
                .map_or_else(|| "-".to_owned(), |mtu| mtu.to_string()),
            units::count(number(&shard["datagrams_sent"])),
            units::count(number(&shard["datagrams_received"])),
            number(&shard["reconnects"]).to_string(),
        ]
    });
    let head = [
        "stripe",
        "carrier",
        "round trip",
        "path MTU",
        "sent",
        "received",
        "again",
    ];
    table(
        "Connections to the server",
        &head,
        &[14, 9, 10, 8, 11, 11, 5],
        2,
        rows,
    )
}

fn drop_table<'a>(now: &Value) -> Table<'a> {
    let rows = drops(now)
        .into_iter()
        .map(|(reason, into, out)| vec![reason.replace('_', " "), units::count(into), units::count(out)]);
    table(
        "Dropped datagrams",
        &["reason", "in", "out"],
        &[18, 8, 8],
        1,
        rows,
    )
}

fn draw_events(frame: &mut Frame, area: Rect, now: &Value) {
    let events = now["events"].as_array().into_iter().flatten().rev();
    let lines: Vec<_> = events
        .take(usize::from(area.height))
        .map(|event| {
            let second = number(&event["time"]) % 86_400;
            let time = format!(
                "{:02}:{:02}:{:02} ",
                second / 3_600,
                second / 60 % 60,
                second % 60
            );
            Line::from(vec![time.dim(), text(&event["text"]).into()])
        })
        .collect();
    let events = Paragraph::new(lines)
        .wrap(Wrap { trim: true })
        .block(frame_of("Last events (UTC)"));
    frame.render_widget(events, area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;

    /// What a terminal of this size shows.
    fn drawn(history: &History, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, history)).unwrap();
        terminal.backend().to_string()
    }

    fn server(uptime: f64, bytes: u64) -> Value {
        json!({
            "role": "server", "pid": 7, "state": "listening", "local": "192.0.2.1:443", "uptime_seconds": uptime,
            "outer_io": { "bytes_received": bytes, "bytes_sent": bytes * 2 },
            "ingress": { "sent": 5, "drops": { "queue_full": 12 } }, "egress": { "sent": 6, "drops": {} },
            "quic": { "packets_sent": 200, "packets_lost": 1 },
            "connections": { "open": 3 }, "udp_sessions": { "open": 1 }, "tcp": { "open": 2 },
            "users": { "a1": {
                "name": "alice", "connections": 3, "bytes": bytes, "used_bytes": 5_000_000, "quota_bytes": 10_000_000,
                "quota_period": "month", "expires": null, "excluded": null, "relayed_bytes": bytes / 2,
            } },
            "rendezvous": { "relayed_bytes": bytes * 3 },
            "warnings": [{ "what": "The kernel drops", "advice": "Raise it." }],
            "events": [{ "time": 3_661, "text": "alice connected" }],
        })
    }

    #[test]
    fn a_server_is_shown_with_rates_users_drops_and_events() {
        let mut history = History::default();
        history.add(vec![server(1.0, 0)]);
        history.add(vec![server(2.0, 1_000_000)]);
        let shown = drawn(&history, 120, 40);
        for part in [
            "server, listening",
            "192.0.2.1:443",
            "! The kernel drops. Raise it.",
            "8.0 Mbit/s",
            "16.0 Mbit/s",
            "0.50 % lost",
            "alice",
            "5.0 MB of 10.0 MB/month",
            "3.0 MB relayed to peers",
            "500 kB",
            "queue full",
            "01:01:01 alice connected",
            "q: quit",
        ] {
            assert!(shown.contains(part), "{part} is not in\n{shown}");
        }
    }

    #[test]
    fn a_client_is_shown_with_its_stripes() {
        let mut history = History::default();
        history.add(vec![json!({
            "role": "client", "pid": 8, "state": "connected", "uptime_seconds": 1.0,
            "shards": [{
                "index": 0, "state": "connected", "carrier": { "kind": "tcp" }, "datagrams_sent": 1_234,
                "stripe": { "rtt_ms": 12.345, "path_mtu": 1_400 },
            }],
        })]);
        let shown = drawn(&history, 120, 30);
        for part in ["1 connected", "TCP shape", "12.35 ms", "1400", "1,234"] {
            assert!(shown.contains(part), "{part} is not in\n{shown}");
        }
    }

    #[test]
    fn the_smallest_terminals_and_strange_answers_are_drawn_as_well() {
        let mut history = History::default();
        drawn(&history, 80, 24);
        history.add(vec![json!({ "pid": 1 })]);
        for (width, height) in [(1, 1), (3, 2), (20, 5), (300, 100)] {
            drawn(&history, width, height);
        }
    }
}
