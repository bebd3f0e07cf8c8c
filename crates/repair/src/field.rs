//! The field GF(2^16) of the code, and the coefficients of its parity (REPAIR-8).
//!
//! The coefficients are a Cauchy matrix: of any parity datagrams that cover the same window, each repairs one loss.
//! They depend on 16 bits of numbers only, so there are 256 of them, whose tables stay in the cache. Loops over
//! payloads are the SIMD engine's of `reed-solomon-simd`; its block codes are not used, because decoding any block,
//! however small, costs them 0.15 ms.

use reed_solomon_simd::engine::{DefaultEngine, Engine, GF_MODULUS, GfElement, tables, utils};

use crate::symbol::Symbol;

/// Arithmetic of the code; one for each shard. The first one of a process makes 8 MiB of tables, which takes about 10
/// ms.
pub struct Field {
    engine: DefaultEngine,
    /// Logarithms of the coefficients, by the difference of number and index.
    coefficients: Box<[GfElement; 256]>,
    scratch: Vec<[u8; 64]>,
}

/// A scalar of the field that is not zero, by its logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scalar(GfElement);

impl Scalar {
    pub(crate) const ONE: Self = Self(0);

    fn of(element: GfElement) -> Option<Self> {
        (element != 0).then(|| Self(tables::get_exp_log().log[usize::from(element)] % GF_MODULUS))
    }

    fn element(self) -> GfElement {
        tables::get_exp_log().exp[usize::from(self.0)]
    }

    pub(crate) fn times(self, other: Self) -> Self {
        let sum = u32::from(self.0) + u32::from(other.0);
        Self((sum % u32::from(GF_MODULUS)) as GfElement)
    }

    pub(crate) fn inverse(self) -> Self {
        Self((GF_MODULUS - self.0) % GF_MODULUS)
    }

    /// The sum; `None` for zero.
    pub(crate) fn plus(self, other: Self) -> Option<Self> {
        Self::of(self.element() ^ other.element())
    }
}

impl Default for Field {
    fn default() -> Self {
        let mut coefficients = Box::new([0; 256]);
        for (difference, coefficient) in coefficients.iter_mut().enumerate() {
            let element = 256 | difference as GfElement;
            *coefficient = Scalar::of(element)
                .expect("256 and above is not zero")
                .inverse()
                .0;
        }
        Self {
            engine: DefaultEngine::new(),
            coefficients,
            scratch: Vec::new(),
        }
    }
}

impl std::fmt::Debug for Field {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Field")
    }
}

impl Field {
    /// What a payload is multiplied by in a parity datagram: 1 / (256 + index - number), both taken modulo 256 and
    /// subtraction being that of the field (REPAIR-8).
    pub(crate) fn coefficient(&self, number: u64, index: u8) -> Scalar {
        Scalar(self.coefficients[usize::from(number as u8 ^ index)])
    }

    /// `sum += factor * symbol`; the sum becomes as long as the longer of both.
    pub(crate) fn add(&mut self, sum: &mut Symbol, symbol: &Symbol, factor: Scalar) {
        let chunks = symbol.chunks();
        sum.lengthen(chunks.len());
        if factor == Scalar::ONE {
            return utils::xor(&mut sum.chunks_mut()[..chunks.len()], chunks);
        }
        if self.scratch.len() < chunks.len() {
            self.scratch.resize(chunks.len(), [0; 64]);
        }
        let scratch = &mut self.scratch[..chunks.len()];
        scratch.copy_from_slice(chunks);
        self.engine.mul(scratch, factor.0);
        utils::xor(&mut sum.chunks_mut()[..chunks.len()], scratch);
    }

    /// `symbol *= factor`
    pub(crate) fn scale(&self, symbol: &mut Symbol, factor: Scalar) {
        if factor != Scalar::ONE {
            self.engine.mul(symbol.chunks_mut(), factor.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference: multiplication element by element.
    fn product(bytes: &[u8], factor: Scalar) -> Vec<u8> {
        let exp_log = tables::get_exp_log();
        let elements = bytes.chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
        elements
            .flat_map(|element| tables::mul(element, factor.0, &exp_log.exp, &exp_log.log).to_le_bytes())
            .collect()
    }

    /// REPAIR-7, REPAIR-8: elements are pairs of bytes, the low one first.
    #[test]
    fn symbols_are_multiplied_pair_by_pair() {
        let mut field = Field::default();
        for (bytes, number, index) in [(2_usize, 0, 0), (64, 1, 7), (166, 255, 200), (1_500, 77, 78)] {
            let payload: Vec<u8> = (0..bytes - 2).map(|at| (at * 37 + 11) as u8).collect();
            let mut symbol = Symbol::default();
            symbol.hold_payload(&payload);
            let mut whole = (payload.len() as u16).to_be_bytes().to_vec();
            whole.extend(&payload);
            let factor = field.coefficient(number, index);
            let mut sum = Symbol::default();
            field.add(&mut sum, &symbol, factor);
            let mut out = Vec::new();
            sum.write(bytes, &mut out);
            assert_eq!(out, product(&whole, factor));
            field.scale(&mut sum, factor.inverse());
            out.clear();
            sum.write(bytes, &mut out);
            assert_eq!(out, whole);
        }
    }

    /// REPAIR-8: the values that another implementation would compare with.
    #[test]
    fn coefficients_are_inverses_and_scalars_obey_the_laws_of_a_field() {
        let field = Field::default();
        for (number, index) in [(0_u64, 0_u8), (5, 250), (256, 0), (1 << 40, 3)] {
            let element = 256 | u16::from(number as u8 ^ index);
            let one = field
                .coefficient(number, index)
                .times(Scalar::of(element).unwrap());
            assert_eq!(one, Scalar::ONE);
        }
        let (a, b) = (Scalar::of(0x1234).unwrap(), Scalar::of(0xffff).unwrap());
        assert_eq!(a.plus(a), None);
        assert_eq!(a.plus(b).unwrap().plus(b), Some(a));
        assert_eq!(a.times(b).times(b.inverse()), a);
        assert_eq!(Scalar::ONE.element(), 1);
    }
}
