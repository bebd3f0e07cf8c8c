//! What is in the files that are transferred: the same bytes in every run, on every machine.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::limits::FILES_BLOCK_BYTES;

/// Files in a directory of source code.
const CODE_FILES_IN_DIRECTORY: u32 = 64;

/// Mean size of a file of source code, in bytes; sizes are even from none to twice as much.
const CODE_FILE_BYTES: u64 = 32 << 10;

/// Log files, which share the other half of a text.
const LOG_FILES: u64 = 16;

/// Of each piece of a sparse file so many bytes at its start are data.
const SPARSE_DATA_BYTES: usize = 4 << 10;

/// A piece of a sparse file, in bytes.
const SPARSE_PIECE_BYTES: u64 = 1 << 20;

/// What is in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// One file of random bytes.
    Random { bytes: u64 },
    /// Files of random bytes, in one directory.
    RandomFiles { files: u32, bytes_each: u64 },
    /// Source code and logs, half and half, together about so many bytes.
    Text { bytes: u64 },
    /// One file, mostly holes, with data in every piece of it.
    Sparse { bytes: u64 },
}

/// What was made.
pub(super) struct Made {
    /// The file or directory.
    pub(super) path: PathBuf,
    /// Of all files.
    pub(super) bytes: u64,
}

impl Content {
    /// Makes it in `directory`, has it on the disk and in the page cache.
    pub(super) fn make(self, directory: &Path) -> io::Result<Made> {
        let path = directory.join("source");
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let bytes = match self {
            Self::Random { bytes } => {
                write_random(&path, bytes, &mut random)?;
                bytes
            }
            Self::RandomFiles { files, bytes_each } => {
                fs::create_dir(&path)?;
                for number in 0..files {
                    write_random(&path.join(number.to_string()), bytes_each, &mut random)?;
                }
                u64::from(files) * bytes_each
            }
            Self::Text { bytes } => {
                fs::create_dir(&path)?;
                let writer = TextWriter::new(&mut random);
                writer.write_code(&path.join("code"), bytes / 2, &mut random)?
                    + writer.write_logs(&path.join("logs"), bytes / 2, &mut random)?
            }
            Self::Sparse { bytes } => {
                write_sparse(&path, bytes, &mut random)?;
                bytes
            }
        };
        rustix::fs::sync();
        read_all(&path)?;
        Ok(Made { path, bytes })
    }
}

/// Says where the copy is another one than the source.
pub(super) fn compare(source: &Path, copy: &Path) -> Result<(), String> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: io::Error| format!("{path}: {error}")
    };
    let found = fs::symlink_metadata(source).map_err(failed(source))?;
    if found.is_dir() {
        for entry in fs::read_dir(source).map_err(failed(source))? {
            let name = entry.map_err(failed(source))?.file_name();
            compare(&source.join(&name), &copy.join(&name))?;
        }
        return Ok(());
    }
    let open = |path: &Path| fs::File::open(path).map_err(failed(path));
    let (mut left, mut right) = (open(source)?, open(copy)?);
    if right.metadata().map_err(failed(copy))?.len() != found.len() {
        return Err(format!("{} has another size", copy.display()));
    }
    let mut blocks = [vec![0; FILES_BLOCK_BYTES], vec![0; FILES_BLOCK_BYTES]];
    let mut to_read = found.len();
    while to_read > 0 {
        let length = to_read.min(FILES_BLOCK_BYTES as u64) as usize;
        left.read_exact(&mut blocks[0][..length])
            .map_err(failed(source))?;
        right.read_exact(&mut blocks[1][..length]).map_err(failed(copy))?;
        if blocks[0][..length] != blocks[1][..length] {
            return Err(format!("{} has other bytes", copy.display()));
        }
        to_read -= length as u64;
    }
    Ok(())
}

/// Reads everything once, so that the first contestant finds it in the page cache as the others do.
fn read_all(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            read_all(&entry?.path())?;
        }
        return Ok(());
    }
    let mut file = fs::File::open(path)?;
    let mut block = vec![0; FILES_BLOCK_BYTES];
    while file.read(&mut block)? > 0 {}
    Ok(())
}

fn write_random(path: &Path, bytes: u64, random: &mut Random) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    let mut block = Vec::with_capacity(FILES_BLOCK_BYTES);
    let mut left = bytes;
    while left > 0 {
        block.clear();
        let length = left.min(FILES_BLOCK_BYTES as u64) as usize;
        while block.len() < length {
            block.extend_from_slice(&random.next().to_le_bytes());
        }
        file.write_all(&block[..length])?;
        left -= length as u64;
    }
    Ok(())
}

fn write_sparse(path: &Path, bytes: u64, random: &mut Random) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let file = fs::File::create(path)?;
    file.set_len(bytes)?;
    for piece in 0..bytes / SPARSE_PIECE_BYTES {
        let mut data = Vec::with_capacity(SPARSE_DATA_BYTES);
        while data.len() < SPARSE_DATA_BYTES {
            data.extend_from_slice(&random.next().to_le_bytes());
        }
        file.write_all_at(&data, piece * SPARSE_PIECE_BYTES)?;
    }
    Ok(())
}

/// A sequence of numbers that look random (xorshift), the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Below `limit`, each number as often as the others.
    fn below(&mut self, limit: u64) -> u64 {
        // The low bits of xorshift are the weaker ones.
        (self.next() >> 16) % limit
    }

    /// Below `limit`, small numbers far more often than large ones, as words in texts (Zipf's law).
    fn skewed(&mut self, limit: usize) -> usize {
        let fraction = self.below(1 << 32) as f64 / (1_u64 << 32) as f64;
        ((limit as f64).powf(fraction) as usize)
            .saturating_sub(1)
            .min(limit - 1)
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.skewed(all.len())]
    }
}

/// Writes text that compresses as source code and logs do: words and names by Zipf's law, names that return within a
/// file, lines of a few dozen shapes, and in logs numbers that never return. `zstd -3` makes a fifth of the code and a
/// quarter of the logs.
struct TextWriter {
    words: Vec<String>,
}

impl TextWriter {
    fn new(random: &mut Random) -> Self {
        const SYLLABLES: [&str; 40] = [
            "re", "con", "de", "in", "pro", "ta", "ti", "co", "se", "al", "pre", "si", "mo", "ca", "ri",
            "lo", "ver", "ma", "per", "fi", "na", "ble", "ter", "me", "ex", "po", "tion", "ed", "un", "ac",
            "ment", "su", "li", "er", "ing", "le", "or", "ness", "ic", "ate",
        ];
        let word = |_| {
            let syllables = 1 + random.below(3);
            (0..=syllables)
                .map(|_| SYLLABLES[random.below(SYLLABLES.len() as u64) as usize])
                .collect()
        };
        Self {
            words: (0..6_000).map(word).collect(),
        }
    }

    fn write_code(&self, directory: &Path, bytes: u64, random: &mut Random) -> io::Result<u64> {
        let (mut written, mut number) = (0, 0_u32);
        while written < bytes {
            let module = directory.join(format!("module{}", number / CODE_FILES_IN_DIRECTORY));
            if number.is_multiple_of(CODE_FILES_IN_DIRECTORY) {
                fs::create_dir_all(&module)?;
            }
            let length = 1 + random.below(2 * CODE_FILE_BYTES);
            let text = self.code(length as usize, random);
            let name = format!("{}_{number}.rs", random.of(&self.words));
            fs::write(module.join(name), &text)?;
            written += text.len() as u64;
            number += 1;
        }
        Ok(written)
    }

    fn name(&self, random: &mut Random) -> String {
        let mut name = random.of(&self.words).clone();
        for _ in 0..random.below(3) {
            name.push('_');
            name.push_str(random.of(&self.words).as_str());
        }
        name
    }

    fn code(&self, length: usize, random: &mut Random) -> String {
        let names: Vec<String> = (0..48).map(|_| self.name(random)).collect();
        let types: Vec<String> = (0..16)
            .map(|_| {
                let name = self.name(random);
                name.split('_').map(capitalized).collect()
            })
            .collect();
        let mut text = String::with_capacity(length + 256);
        while text.len() < length {
            self.write_function(&mut text, &names, &types, random);
        }
        text
    }

    fn write_function(&self, text: &mut String, names: &[String], types: &[String], random: &mut Random) {
        text.push_str("    /// ");
        self.write_words(text, 6 + random.below(14), random);
        let (name, given) = (random.of(names), random.of(names));
        let (kind, result) = (random.of(types), random.of(types));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "    pub fn {name}(&mut self, {given}: &{kind}) -> Result<{result}, Error> {{"
        );
        for _ in 0..2 + random.below(10) {
            let (one, two, three) = (random.of(names), random.of(names), random.of(names));
            let (kind, number) = (random.of(types), random.skewed(4_096));
            let _ = match random.below(12) {
                0 => writeln!(text, "        let {one} = self.{two}.{three}({given});"),
                1 => writeln!(text, "        let mut {one} = {kind}::new(self.{two}, {number});"),
                2 => writeln!(
                    text,
                    "        if {given}.{one}() > {number} {{\n            return Err(Error::{kind} {{ {two}: self.{two} }});\n        }}"
                ),
                3 => writeln!(
                    text,
                    "        for {one} in self.{two}.iter().filter(|{one}| {one}.{three} != {number}) {{\n            self.{three}({one})?;\n        }}"
                ),
                4 => writeln!(text, "        self.{one} += {two}.len() as u64;"),
                5 => writeln!(
                    text,
                    "        match {given}.{one} {{\n            Some({two}) => self.{three}({two}),\n            None => {kind}::default(),\n        }};"
                ),
                6 => writeln!(text, "        assert_eq!({one}.{two}(), {number}, \"{three}\");"),
                7 => {
                    text.push_str("        // ");
                    self.write_words(text, 4 + random.below(12), random);
                    Ok(())
                }
                8 => writeln!(
                    text,
                    "        let {one} = {given}.{two}().map_err(|error| Error::{kind}(error.to_string()))?;"
                ),
                9 => writeln!(
                    text,
                    "        self.{one}.insert({two}.clone(), {kind} {{ {three}, {one}: {number} }});"
                ),
                10 => writeln!(text, "        debug!(?{one}, {two} = %self.{two}, \"{three}\");"),
                _ => writeln!(
                    text,
                    "        {one}.push({two}.{three}(&self.{two}, {number:#x})?);"
                ),
            };
        }
        let _ = writeln!(text, "        Ok({})\n    }}\n", random.of(names));
    }

    fn write_words(&self, text: &mut String, count: u64, random: &mut Random) {
        for number in 0..count {
            if number > 0 {
                text.push(' ');
            }
            text.push_str(random.of(&self.words).as_str());
        }
        text.push_str(".\n");
    }

    fn write_logs(&self, directory: &Path, bytes: u64, random: &mut Random) -> io::Result<u64> {
        fs::create_dir(directory)?;
        let mut written = 0;
        for number in 0..LOG_FILES {
            let path = directory.join(format!("service{number}.log"));
            let mut file = fs::File::create(path)?;
            let mut of_file = 0;
            let mut microseconds = 1_800_000_000_000_000 + number * 86_400_000_000;
            while of_file < bytes / LOG_FILES {
                let mut text = String::with_capacity(FILES_BLOCK_BYTES + 512);
                while text.len() < FILES_BLOCK_BYTES && of_file + (text.len() as u64) < bytes / LOG_FILES {
                    microseconds += random.below(9_000);
                    self.write_log_line(&mut text, microseconds, random);
                }
                file.write_all(text.as_bytes())?;
                of_file += text.len() as u64;
            }
            written += of_file;
        }
        Ok(written)
    }

    fn write_log_line(&self, text: &mut String, microseconds: u64, random: &mut Random) {
        const LEVELS: [&str; 4] = ["INFO ", "DEBUG", "WARN ", "ERROR"];
        const STATES: [u16; 6] = [200, 304, 204, 404, 302, 500];
        let level = random.of(&LEVELS);
        let (module, other) = (random.skewed(40), random.skewed(400));
        let (module, other) = (&self.words[module], &self.words[other]);
        let request = random.next();
        let client = random.skewed(4_000);
        let (number, size) = (random.skewed(100_000), random.below(60_000));
        let took = random.below(200_000) as f64 / 1e3;
        let (seconds, rest) = (microseconds / 1_000_000, microseconds % 1_000_000);
        let _ = write!(
            text,
            "2026-11-{:02}T{:02}:{:02}:{:02}.{rest:06}Z {level} {module}::{other}: ",
            1 + seconds / 86_400 % 28,
            seconds / 3_600 % 24,
            seconds / 60 % 60,
            seconds % 60,
        );
        let (high, low) = (client / 256, client % 256);
        let _ = match random.skewed(6) {
            0 | 1 => writeln!(
                text,
                "request id={request:016x} client=10.20.{high}.{low} method=GET path=/{other}/items/{number} status={} bytes={size} duration_ms={took}",
                random.of(&STATES)
            ),
            2 => writeln!(
                text,
                "query took {took} ms rows={number} statement=\"SELECT {module}, {other} FROM {module} WHERE {other} = $1\""
            ),
            3 => writeln!(text, "cache miss key={other}:{number} size={size}"),
            4 => writeln!(
                text,
                "connection from 10.20.{high}.{low}:{} closed after {took} ms: peer reset",
                size + 1_024
            ),
            _ => {
                text.push_str("retrying ");
                self.write_words(text, 3 + random.below(6), random);
                Ok(())
            }
        };
    }
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map(|first| first.to_ascii_uppercase().to_string() + letters.as_str())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn made(content: Content) -> (tempfile::TempDir, Made) {
        let directory = tempfile::tempdir().unwrap();
        let made = content.make(directory.path()).unwrap();
        (directory, made)
    }

    #[test]
    fn the_same_files_are_made_each_time_and_a_byte_that_differs_is_found() {
        for content in [
            Content::Random { bytes: 3_000_001 },
            Content::RandomFiles {
                files: 5,
                bytes_each: 4_096,
            },
            Content::Text { bytes: 400_000 },
            Content::Sparse { bytes: 3 << 20 },
        ] {
            let ((_first, one), (_second, two)) = (made(content), made(content));
            assert_eq!(one.bytes, two.bytes);
            compare(&one.path, &two.path).unwrap();
            let mut file = two.path;
            while file.is_dir() {
                file = fs::read_dir(&file).unwrap().next().unwrap().unwrap().path();
            }
            let mut bytes = fs::read(&file).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(&file, &bytes).unwrap();
            let copy = _second.path().join("source");
            assert!(compare(&one.path, &copy).unwrap_err().contains("other bytes"));
            bytes.pop();
            fs::write(&file, &bytes).unwrap();
            assert!(compare(&one.path, &copy).unwrap_err().contains("another size"));
            fs::remove_file(&file).unwrap();
            assert!(compare(&one.path, &copy).is_err());
        }
    }

    #[test]
    fn a_sparse_file_takes_little_room_and_has_data_in_every_piece() {
        let (_directory, made) = made(Content::Sparse { bytes: 8 << 20 });
        let found = fs::metadata(&made.path).unwrap();
        assert_eq!(found.len(), 8 << 20);
        assert!(found.blocks() * 512 < 1 << 20, "{} blocks", found.blocks());
        let bytes = fs::read(&made.path).unwrap();
        for piece in bytes.chunks(SPARSE_PIECE_BYTES as usize) {
            assert!(piece[..SPARSE_DATA_BYTES].iter().any(|byte| *byte != 0));
        }
    }

    #[test]
    fn text_is_half_code_and_half_logs_of_about_the_size_that_was_asked_for() {
        let (_directory, made) = made(Content::Text { bytes: 2_000_000 });
        assert!((2_000_000..2_200_000).contains(&made.bytes), "{}", made.bytes);
        let log = fs::read_to_string(made.path.join("logs/service0.log")).unwrap();
        assert!(log.lines().count() > 300 && log.is_ascii());
        assert!(made.path.join("code/module0").is_dir());
    }
}
