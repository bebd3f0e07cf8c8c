//! Lines of JSON as a terminal may show them: what JSON leaves as it is although a terminal obeys it, DEL, C1 and the
//! marks of direction, has another name there.

use std::io::{self, Write};

use crate::output;

/// Writes records, each of which comes whole, to another writer.
pub(super) struct JsonLines<W>(pub(super) W);

impl<W: Write> Write for JsonLines<W> {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(record);
        self.0.write_all(output::json_lines(&text).as_bytes())?;
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_the_same_without_what_a_terminal_obeys() {
        let said = "a\u{7f}b\u{9b}31m\u{202e}c\u{1b}";
        let line = serde_json::json!({ "message": said }).to_string() + "\n";
        assert!(line.contains('\u{9b}'));
        let mut written = Vec::new();
        JsonLines(&mut written).write_all(line.as_bytes()).unwrap();
        let written = String::from_utf8(written).unwrap();
        assert!(
            !written
                .trim_end()
                .contains(|c: char| c.is_control() || c == '\u{202e}')
        );
        let value: serde_json::Value = serde_json::from_str(&written).unwrap();
        assert_eq!(value["message"], said);
    }
}
