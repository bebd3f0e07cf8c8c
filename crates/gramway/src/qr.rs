//! A text as a QR code of half-block characters.

use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

/// The code with its quiet zone; light modules are drawn, for the usual dark terminal. `None` where the text is too
/// long for a QR code (2,953 bytes).
pub(crate) fn draw(text: &str) -> Option<String> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L).ok()?;
    Some(
        code.render::<Dense1x2>()
            .dark_color(Dense1x2::Light)
            .light_color(Dense1x2::Dark)
            .build(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_square_and_a_text_too_long_has_none() {
        let drawing = draw("gramway://example").unwrap();
        let width = drawing.lines().next().unwrap().chars().count();
        assert!(drawing.lines().all(|line| line.chars().count() == width));
        assert_eq!(drawing.lines().count(), width.div_ceil(2));
        assert_eq!(draw(&"x".repeat(4_000)), None);
    }
}
