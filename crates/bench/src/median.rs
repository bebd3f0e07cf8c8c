//! Medians and percentiles of small samples.

/// The index of the median of `values` by size: the lower of the two middle ones where the count is even. `None`
/// when there is no value. Not-a-number sorts last.
pub(crate) fn median_index(values: &[f64]) -> Option<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    order.get(values.len().saturating_sub(1) / 2).copied()
}

/// The value below which `fraction` (0 to 1) of the values lie, by nearest rank; zero when there is none. Sorts.
pub(crate) fn percentile(values: &mut [f64], fraction: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * fraction).ceil().max(1.0) as usize;
    values
        .get(rank.min(values.len()).saturating_sub(1))
        .copied()
        .unwrap_or(0.0)
}

/// The middle value; zero when there is none.
pub(crate) fn median(values: &[f64]) -> f64 {
    median_index(values).map_or(0.0, |index| values[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_value_that_was_measured() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.0);
        assert_eq!(median_index(&[9.0]), Some(0));
        assert_eq!(median_index(&[]), None);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&mut values, 0.5), 50.0);
        assert_eq!(percentile(&mut values, 0.99), 99.0);
        assert_eq!(percentile(&mut values, 1.0), 100.0);
        assert_eq!(percentile(&mut [], 0.5), 0.0);
        assert_eq!(percentile(&mut [7.0], 0.01), 7.0);
    }
}
