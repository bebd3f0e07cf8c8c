//! Follows the user's book, `docs/`, step by step: what a chapter tells the reader to do ([`chapter`]), the machines
//! that it is about ([`machine`], [`world`]), and whether they print what the book shows ([`output`]).
//!
//! A chapter is Markdown. Its fenced blocks are instructions for the test as well as for the reader:
//!
//! | fence | meaning |
//! |---|---|
//! | `sh MACHINE` | each line is run on that machine, as its user; a line that begins with `sudo` as root |
//! | `sh MACHINE stays` | the command keeps running; the book shows lines that it prints, in any order |
//! | `sh MACHINE until` | run again until it prints what the book shows, as a reader would |
//! | `sh MACHINE fails` | the command does not exit with 0 |
//! | `text` behind one of these | what they print; `…` stands for anything, on a line of its own for any lines |
//! | `LANGUAGE MACHINE:PATH` | a file that the reader writes |
//!
//! Comments, which readers do not see, tell the test the rest:
//!
//! | comment | meaning |
//! |---|---|
//! | `<!-- not run: REASON -->` | the next block cannot be run |
//! | `<!-- copied: ~/FILE from MACHINE to MACHINE -->` | the reader copies a file |
//! | `<!-- Ctrl-C on MACHINE -->` | the last command that stays there is ended |
//! | `<!-- killed on MACHINE -->` | it is killed |
//! | `<!-- SHOWN stands for what MACHINE printed behind: WORDS -->` | what the reader types for SHOWN |
//! | `<!-- MACHINE says -->` | the next `text` block shows further lines of it, in this order |
//!
//! The text above a command names its machine.

pub mod chapter;
pub mod follow;
pub mod machine;
pub mod output;
pub mod world;
