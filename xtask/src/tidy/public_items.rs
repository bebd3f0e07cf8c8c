//! What the public items of a Rust file show to other crates: signatures, public fields, variants, items of traits.
//!
//! Bodies of functions, private fields and values of constants are not shown. An item counts as public by its own
//! `pub`, whatever the module around it is.

use std::iter;
use std::ops::Range;

use super::rust_code::{end_of, positions_of};

/// The shown parts of `code`, which holds neither comments nor literals. Each item is one entry, of one part or
/// several.
pub(super) fn shown(code: &str) -> Vec<Vec<Range<usize>>> {
    positions_of(code, "pub")
        .filter_map(|position| {
            // A restricted item, `pub(crate)`, is not public.
            let rest = &code[position + "pub".len()..];
            let start = code.len() - rest.trim_start().len();
            (start > position + "pub".len()).then(|| shown_item(code, start))
        })
        .collect()
}

/// The names of the public types and traits.
pub(super) fn type_names(code: &str) -> impl Iterator<Item = &str> {
    positions_of(code, "pub").filter_map(|position| {
        let mut words = words(&code[position..]);
        let kind = words.nth(1)?;
        matches!(kind, "struct" | "enum" | "union" | "trait" | "type").then(|| words.next())?
    })
}

/// The shown parts of an item or field whose text behind `pub` begins at `start`.
fn shown_item(code: &str, start: usize) -> Vec<Range<usize>> {
    let head = &code[start..end_of(code, start, b"(={;")];
    let words = || words(head);
    let kind = words().find(|word| !matches!(*word, "async" | "auto" | "const" | "extern" | "unsafe"));
    let one = |ends: &[u8]| whole(start..end_of(code, start, ends));
    match (kind, words().next()) {
        (Some("use" | "type" | "crate"), _) => one(b";"),
        (Some("fn" | "mod"), _) => one(b"{;"),
        (Some("struct" | "union"), _) => shown_struct(code, start),
        (Some("enum"), _) => shown_enum(code, start),
        (Some("trait"), _) => shown_trait(code, start),
        (_, Some("const" | "static")) => one(b"=;"),
        _ => one(b","),
    }
}

/// Everything but the fields, which are shown by a `pub` of their own.
fn shown_struct(code: &str, start: usize) -> Vec<Range<usize>> {
    let end = end_of(code, start, b"{;");
    let fields = end_of(code, start, b"({;");
    let is_tuple = fields < end && positions_of(&code[start..fields], "where").next().is_none();
    if is_tuple {
        vec![start..fields, end_of(code, fields + 1, b"")..end]
    } else {
        whole(start..end)
    }
}

/// Everything but the variants' names.
fn shown_enum(code: &str, start: usize) -> Vec<Range<usize>> {
    let body = end_of(code, start, b"{");
    let mut parts = whole(start..body);
    let mut position = body + 1;
    while position < code.len() {
        let end = end_of(code, position, b",");
        let name = without_attributes(code, position);
        let variant = code.get(name..end).unwrap_or_default();
        let content = variant.find(|character| !is_word(character));
        parts.extend(content.map(|length| name + length..end));
        if code.as_bytes().get(end) != Some(&b',') {
            break;
        }
        position = end + 1;
    }
    parts
}

/// Everything but the bodies of functions.
fn shown_trait(code: &str, start: usize) -> Vec<Range<usize>> {
    let body = end_of(code, start, b"{;");
    let mut parts = whole(start..body);
    let mut position = body + 1;
    while position < code.len() {
        let end = end_of(code, position, b"{;");
        parts.push(position..end);
        position = match code.as_bytes().get(end) {
            Some(b'{') => end_of(code, end + 1, b"") + 1,
            Some(b';') => end + 1,
            _ => break,
        };
    }
    parts
}

/// An item of one part.
fn whole(part: Range<usize>) -> Vec<Range<usize>> {
    iter::once(part).collect()
}

/// The position behind the attributes that stand at `position`.
fn without_attributes(code: &str, mut position: usize) -> usize {
    loop {
        let rest = code[position..].trim_start();
        position = code.len() - rest.len();
        if !rest.starts_with("#[") {
            return position;
        }
        position = (end_of(code, position + 2, b"") + 1).min(code.len());
    }
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|character| !is_word(character))
        .filter(|word| !word.is_empty())
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(code: &str) -> Vec<String> {
        let text = |parts: Vec<Range<usize>>| {
            let words: Vec<&str> = parts
                .into_iter()
                .flat_map(|part| code[part].split_whitespace())
                .collect();
            words.join(" ")
        };
        shown(code).into_iter().map(text).collect()
    }

    #[test]
    fn a_signature_ends_with_its_item_and_not_inside_brackets() {
        for (code, expected) in [
            (
                "pub fn a(b: [u8; 4], c: D) -> E { F }",
                "fn a(b: [u8; 4], c: D) -> E",
            ),
            (
                "pub const fn a<B: C<4>>() where D: E { F }",
                "const fn a<B: C<4>>() where D: E",
            ),
            ("pub async fn a() { F }", "async fn a()"),
            ("pub unsafe extern     fn a();", "unsafe extern fn a()"),
            ("pub const A: [B; 2] = [C; 2];", "const A: [B; 2]"),
            ("pub static A: F<fn() -> B> = c();", "static A: F<fn() -> B>"),
            ("pub type A = [B; 1 << 4];", "type A = [B; 1 << 4]"),
            ("pub use a::{b, c::{D}};", "use a::{b, c::{D}}"),
            ("pub mod a { struct B; }", "mod a"),
        ] {
            assert_eq!(texts(code), [expected]);
        }
    }

    #[test]
    fn fields_count_by_themselves() {
        let code = "pub struct A<B: C> {\n    pub b: Map<D, [E; 2]>,\n    f: G,\n    pub(crate) h: I,\n    pub j: fn(K) -> L\n}";
        assert_eq!(
            texts(code),
            ["struct A<B: C>", "b: Map<D, [E; 2]>", "j: fn(K) -> L"]
        );
        let code = "pub struct A<B>(pub Map<C, D>, E, pub(super) F) where B: Fn(G);";
        assert_eq!(texts(code), ["struct A<B> ) where B: Fn(G)", "Map<C, D>"]);
        let code = "pub struct A<B> where B: Fn(C) -> D { e: F }";
        assert_eq!(texts(code), ["struct A<B> where B: Fn(C) -> D"]);
    }

    #[test]
    fn variants_and_items_of_traits_are_shown_without_names_and_bodies() {
        let code = "pub enum A { #[error(b)] C, D(E, F), G { h: I }, J = 4 } K";
        assert_eq!(texts(code), ["enum A (E, F) { h: I } = 4"]);
        let code = "pub trait A: B { type C: D; fn e(f: G) -> H { I } fn j(); } K";
        assert_eq!(texts(code), ["trait A: B type C: D fn e(f: G) -> H fn j()"]);
    }

    #[test]
    fn restricted_and_unfinished_items_are_survived() {
        assert_eq!(texts("pub(crate) fn a() {} pub(in b) type C = D;"), [""; 0]);
        for code in [
            "pub",
            "pub ",
            "pub fn",
            "pub enum A {",
            "pub trait A",
            "pub struct A(",
            "pub fn a) >",
        ] {
            texts(code);
        }
    }

    #[test]
    fn public_types_are_known_by_name() {
        let code = "pub struct A(B); pub(crate) enum C {} pub enum D {} pub fn e() {} pub type F = G; pub trait H {}";
        assert_eq!(type_names(code).collect::<Vec<_>>(), ["A", "D", "F", "H"]);
    }
}
