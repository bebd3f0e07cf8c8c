//! What parity says of missing payloads: linear equations, solved as far as they can be (Gauss and Jordan).
//!
//! Each row has a pivot, its first missing payload, with the coefficient one; no other row has that payload. So a
//! payload is known as soon as its row has nothing else.

use crate::field::{Field, Scalar};
use crate::limits::{ROWS_MAX, SPARE_ROWS};
use crate::symbol::Symbol;

#[derive(Debug, Default)]
struct Row {
    /// Missing payloads with their coefficients, by number.
    terms: Vec<(u64, Scalar)>,
    symbol: Symbol,
    /// Number of the last payload that its parity covered.
    last: u64,
}

/// The rows of one flow.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    rows: Vec<Row>,
    /// Emptied symbols, kept for the next rows.
    spare: Vec<Symbol>,
}

impl Rows {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes of memory that the symbols take.
    pub(crate) fn memory(&self) -> usize {
        let rows = self.rows.iter().map(|row| &row.symbol);
        rows.chain(&self.spare).map(Symbol::memory).sum()
    }

    /// A symbol to be given to [`Rows::add`].
    pub(crate) fn symbol(&mut self) -> Symbol {
        self.spare.pop().unwrap_or_default()
    }

    pub(crate) fn recycle(&mut self, mut symbol: Symbol) {
        if self.spare.len() < SPARE_ROWS {
            symbol.clear();
            self.spare.push(symbol);
        }
    }

    /// Adds an equation: the sum of the missing payloads, each times its coefficient, is `symbol`.
    pub(crate) fn add(&mut self, field: &mut Field, terms: Vec<(u64, Scalar)>, symbol: Symbol, last: u64) {
        let mut row = Row { terms, symbol, last };
        for other in &self.rows {
            let pivot = other.terms[0].0;
            if let Some(factor) = row.factor(pivot) {
                row.add(field, other, factor);
            }
        }
        self.insert(field, row);
        if self.rows.len() > ROWS_MAX
            && let Some(oldest) = (0..self.rows.len()).min_by_key(|at| self.rows[*at].last)
        {
            let row = self.rows.swap_remove(oldest);
            self.recycle(row.symbol);
        }
    }

    /// Takes a row without pivots of others.
    fn insert(&mut self, field: &mut Field, mut row: Row) {
        let Some((pivot, factor)) = row.terms.first().copied() else {
            return self.recycle(row.symbol);
        };
        let inverse = factor.inverse();
        field.scale(&mut row.symbol, inverse);
        for (_, factor) in &mut row.terms {
            *factor = factor.times(inverse);
        }
        for other in &mut self.rows {
            if let Some(factor) = other.factor(pivot) {
                other.add(field, &row, factor);
            }
        }
        self.rows.push(row);
    }

    /// A payload that was missing has come.
    pub(crate) fn substitute(&mut self, field: &mut Field, number: u64, symbol: &Symbol) {
        let mut without_pivot = None;
        for (at, row) in self.rows.iter_mut().enumerate() {
            let Ok(place) = row.terms.binary_search_by_key(&number, |(number, _)| *number) else {
                continue;
            };
            let (_, factor) = row.terms.remove(place);
            field.add(&mut row.symbol, symbol, factor);
            if place == 0 {
                without_pivot = Some(at);
            }
        }
        if let Some(at) = without_pivot {
            let row = self.rows.swap_remove(at);
            self.insert(field, row);
        }
    }

    /// Takes a payload that has become known: its number and symbol.
    pub(crate) fn take_solved(&mut self) -> Option<(u64, Symbol)> {
        let at = self.rows.iter().position(|row| row.terms.len() == 1)?;
        let row = self.rows.swap_remove(at);
        Some((row.terms[0].0, row.symbol))
    }

    /// Forgets rows whose parity ended before `number`.
    pub(crate) fn forget_before(&mut self, number: u64) {
        while let Some(at) = self.rows.iter().position(|row| row.last < number) {
            let row = self.rows.swap_remove(at);
            self.recycle(row.symbol);
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.rows.len()
    }
}

impl Row {
    fn factor(&self, number: u64) -> Option<Scalar> {
        let place = self.terms.binary_search_by_key(&number, |(number, _)| *number);
        place.ok().map(|place| self.terms[place].1)
    }

    /// `self += factor * other`
    fn add(&mut self, field: &mut Field, other: &Self, factor: Scalar) {
        field.add(&mut self.symbol, &other.symbol, factor);
        for (number, theirs) in &other.terms {
            let more = theirs.times(factor);
            match self.terms.binary_search_by_key(number, |(number, _)| *number) {
                Err(place) => self.terms.insert(place, (*number, more)),
                Ok(place) => match self.terms[place].1.plus(more) {
                    Some(sum) => self.terms[place].1 = sum,
                    None => {
                        self.terms.remove(place);
                    }
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(number: u64) -> Symbol {
        let mut symbol = Symbol::default();
        symbol.hold_payload(&[number as u8; 100]);
        symbol
    }

    fn equation(field: &mut Field, numbers: &[u64], index: u8) -> (Vec<(u64, Scalar)>, Symbol) {
        let mut sum = Symbol::default();
        let terms = numbers
            .iter()
            .map(|number| (*number, field.coefficient(*number, index)));
        let terms: Vec<_> = terms.collect();
        for (number, factor) in &terms {
            field.add(&mut sum, &symbol(*number), *factor);
        }
        (terms, sum)
    }

    fn solved(rows: &mut Rows) -> Vec<u64> {
        let mut numbers = Vec::new();
        while let Some((number, found)) = rows.take_solved() {
            assert_eq!(found.chunks(), symbol(number).chunks());
            numbers.push(number);
        }
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn three_equations_of_three_payloads_solve_them() {
        let mut field = Field::default();
        let mut rows = Rows::default();
        for (index, expected) in [(9, &[][..]), (10, &[]), (11, &[3, 5, 8])] {
            let (terms, sum) = equation(&mut field, &[3, 5, 8], index);
            rows.add(&mut field, terms, sum, 8);
            assert_eq!(solved(&mut rows), expected);
        }
        assert!(rows.is_empty());
    }

    #[test]
    fn a_payload_that_comes_late_solves_the_rest_and_a_repeated_equation_says_nothing() {
        let mut field = Field::default();
        let mut rows = Rows::default();
        for _ in 0..2 {
            let (terms, sum) = equation(&mut field, &[1, 2], 7);
            rows.add(&mut field, terms, sum, 2);
        }
        assert_eq!(rows.len(), 1);
        let (terms, sum) = equation(&mut field, &[2, 3], 8);
        rows.add(&mut field, terms, sum, 3);
        rows.substitute(&mut field, 1, &symbol(1));
        assert_eq!(solved(&mut rows), [2, 3]);
    }

    #[test]
    fn rows_are_bounded_and_old_ones_are_forgotten() {
        let mut field = Field::default();
        let mut rows = Rows::default();
        for number in 0..100 {
            let (terms, sum) = equation(&mut field, &[2 * number, 2 * number + 1], 1);
            rows.add(&mut field, terms, sum, 2 * number + 1);
        }
        assert_eq!(rows.len(), ROWS_MAX);
        rows.forget_before(190);
        assert_eq!(rows.len(), 5);
        assert!(rows.memory() <= 2 * ROWS_MAX * 256);
    }
}
