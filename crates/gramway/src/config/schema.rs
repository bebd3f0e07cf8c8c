//! The JSON Schema of the config file, from the table: for editors, and for checks without the program. It knows keys
//! and types; what a value may be beyond its type `gramway check` says.

use serde_json::{Value, json};

use super::setting::{DefaultValue, Kind, Setting};
use super::table;

/// The schema (draft 2020-12).
pub(crate) fn schema() -> Value {
    let properties: serde_json::Map<_, _> = table::all()
        .map(|setting| (setting.key.to_owned(), property(setting)))
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of gramway",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}

fn property(setting: &Setting) -> Value {
    let mut property = match setting.kind {
        Kind::Text | Kind::Path => json!({"type": "string"}),
        Kind::Integer => json!({"type": "integer"}),
        Kind::Boolean => json!({"type": "boolean"}),
        Kind::List => json!({"type": "array", "items": {"type": "string"}}),
    };
    property["description"] =
        format!("{}. Default: {}.", setting.documentation, setting.shown_default()).into();
    match setting.default {
        DefaultValue::Value(value) => property["default"] = json_of(value),
        DefaultValue::Unset { example, .. } => property["examples"] = json!([json_of(example)]),
    }
    property
}

/// The JSON of a value in TOML that the table gives.
fn json_of(value: &str) -> Value {
    let value: toml::Value = value.parse().expect("the table's values are TOML");
    serde_json::to_value(value).expect("texts, numbers, truth values and lists are JSON as well")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_type_and_a_description_and_no_other_key_is_allowed() {
        let schema = schema();
        let properties = schema["properties"].as_object().unwrap();
        assert_eq!(properties.len(), table::all().count());
        for property in properties.values() {
            assert!(
                property["type"].is_string() && property["description"].is_string(),
                "{property}"
            );
        }
        assert_eq!(schema["additionalProperties"], json!(false));
        assert_eq!(properties["gso"]["default"], json!(true));
        assert_eq!(
            properties["forward"]["examples"],
            json!([["udp:5353=10.0.0.1:53"]])
        );
    }
}
