//! A snapshot as OpenMetrics text: every counter of `gramway status`, by the names that the book and the files in
//! `contrib/` use. Names follow Prometheus' conventions: base units, `_total` for what only grows, and labels whose
//! sum means something.
//!
//! Each part takes its structs to pieces without `..`: a new counter does not compile before it has a name here.

mod cover;
mod parties;
mod traffic;
mod tun;

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use tunnel::snapshot::{Histogram, Snapshot};

use crate::reload::LastReload;
use crate::users::Register;

/// What every name begins with.
const PREFIX: &str = "gramway";

/// All states, of a server and of a client.
const SERVER_STATES: [&str; 2] = ["listening", "draining"];
const CLIENT_STATES: [&str; 5] = [
    "connecting",
    "connected",
    "redirected",
    "reconnecting",
    "draining",
];

/// One answer.
#[derive(Clone, Debug)]
pub(super) struct Scrape {
    pub(super) snapshot: Snapshot,
    /// When the process began to serve, in seconds since 1970.
    pub(super) start_seconds: f64,
    /// With what each user does, by the name that it has here.
    pub(super) users: Option<Arc<Register>>,
    pub(super) reload: LastReload,
}

impl Scrape {
    /// The whole text.
    pub(super) fn text(self) -> String {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("writing to a String does not fail");
        text
    }
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let out = &mut Exposition(encoder);
        let Snapshot {
            role,
            // Of the process, not of the tunnel: Prometheus has names of its own for them.
            pid: _,
            uptime_seconds: _,
            state,
            // An address.
            local: _,
            ingress,
            egress,
            quic,
            classified,
            times,
            incoming,
            outer_io,
            inner_io,
            tcp,
            udp_sessions,
            connections,
            listeners,
            sources,
            refused_requests,
            authorizations,
            users,
            reconnects,
            tun,
            rendezvous,
            cover,
            peers,
            shards,
        } = &self.snapshot;
        let build = [("version", env!("CARGO_PKG_VERSION")), ("role", role.as_str())];
        out.gauges("build_info", "Version and role of this process", [(build, 1_u64)])?;
        out.gauge(
            "start_time_seconds",
            "When this process began to serve, in seconds since 1970",
            self.start_seconds,
        )?;
        out.gauge(
            "config_last_reload_successful",
            "1 if the configuration had no errors when it was read last, 0 if the one before holds",
            u64::from(self.reload.is_successful),
        )?;
        out.gauge(
            "config_last_reload_success_timestamp_seconds",
            "When a configuration without errors was read last, in seconds since 1970",
            self.reload.success_seconds,
        )?;
        let states = if role == "server" {
            &SERVER_STATES[..]
        } else {
            &CLIENT_STATES
        };
        let states = states
            .iter()
            .map(|name| ([("state", *name)], u64::from(*name == state.as_str())));
        out.gauges(
            "state",
            "1 for the state of this process, 0 for the others",
            states,
        )?;
        traffic::directions(out, ingress, egress)?;
        traffic::quic(out, quic)?;
        traffic::times(out, times)?;
        traffic::classified(out, classified)?;
        traffic::sockets(out, outer_io, inner_io)?;
        traffic::sessions(out, *tcp, *udp_sessions, sources)?;
        parties::listeners(out, listeners)?;
        parties::connections(out, *connections, *reconnects, peers)?;
        if role == "server" {
            parties::newcomers(out, *incoming, refused_requests, *authorizations)?;
            parties::users(out, users, self.users.as_deref())?;
        }
        parties::shards(out, shards)?;
        if let Some(tun) = tun {
            tun::device(out, tun)?;
        }
        if let Some(rendezvous) = rendezvous {
            parties::rendezvous(out, *rendezvous)?;
        }
        if let Some(cover) = cover {
            cover::site(out, cover)?;
            cover::strangers(out, cover)?;
        }
        Ok(())
    }
}

/// Writes metrics, each with its samples; one without samples is left out.
struct Exposition<'a>(DescriptorEncoder<'a>);

impl Exposition<'_> {
    /// What only grows, of which there is one; `name` is without `_total`.
    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.single(name, help, &ConstCounter::new(value))
    }

    /// What only grows, by labels.
    fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        self.metrics(name, help, MetricType::Counter, samples, ConstCounter::new)
    }

    /// What rises and falls, of which there is one.
    fn gauge<V: EncodeGaugeValue>(&mut self, name: &str, help: &str, value: V) -> fmt::Result {
        self.single(name, help, &ConstGauge::new(value))
    }

    /// What rises and falls, by labels.
    fn gauges<L: EncodeLabelSet, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        self.metrics(name, help, MetricType::Gauge, samples, ConstGauge::new)
    }

    /// How often values of each size came, by labels.
    fn histograms<L: EncodeLabelSet, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, Buckets<N>)>,
    ) -> fmt::Result {
        self.metrics(name, help, MetricType::Histogram, samples, |buckets| buckets)
    }

    fn single(&mut self, name: &str, help: &str, metric: &impl EncodeMetric) -> fmt::Result {
        let (name, unit) = split_unit(name);
        let encoder = self
            .0
            .encode_descriptor(name, help, unit.as_ref(), metric.metric_type())?;
        metric.encode(encoder)
    }

    fn metrics<L: EncodeLabelSet, V, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        samples: impl IntoIterator<Item = (L, V)>,
        metric: impl Fn(V) -> M,
    ) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let (name, unit) = split_unit(name);
        let mut encoder = self.0.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (labels, value) in samples {
            metric(value).encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// A histogram as a metric.
struct Buckets<const N: usize> {
    histogram: Histogram<N>,
    /// What the histogram has for 1 of the metric's unit.
    per_unit: f64,
    /// Buckets below this one, by its largest value in the histogram, are part of it.
    smallest: u64,
}

impl<const N: usize> EncodeMetric for Buckets<N> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let (mut buckets, mut count, mut below) = (Vec::with_capacity(N), 0, 0);
        for (largest, values) in self.histogram.buckets() {
            (count, below) = (count + values, below + values);
            if largest.is_none_or(|largest| largest >= self.smallest) {
                let bound = largest.map_or(f64::INFINITY, |largest| largest as f64 / self.per_unit);
                buckets.push((bound, std::mem::take(&mut below)));
            }
        }
        let sum = self.histogram.sum() as f64 / self.per_unit;
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// A name without its unit, and the unit, which the text names besides.
fn split_unit(name: &str) -> (&str, Option<Unit>) {
    if let Some(name) = name.strip_suffix("_bytes") {
        (name, Some(Unit::Bytes))
    } else if let Some(name) = name.strip_suffix("_seconds") {
        (name, Some(Unit::Seconds))
    } else {
        (name, None)
    }
}

#[cfg(test)]
mod tests;
