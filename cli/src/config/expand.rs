//! `${VAR}` and `${VAR:-default}`; `$${` stands for `${`.

/// Expands a value.
///
/// # Errors
/// Names the variable that is not set, or says that the braces do not close.
pub(super) fn expand(text: &str, var: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, after) = rest.split_at(at);
        let inner = after.get(2..).unwrap_or_default();
        if let Some(kept) = before.strip_suffix('$') {
            out.push_str(kept);
            out.push_str("${");
            rest = inner;
            continue;
        }
        out.push_str(before);
        let Some((inside, tail)) = inner.split_once('}') else {
            return Err("a `${` without its `}`; write `$${` for the characters themselves".into());
        };
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let valid = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !valid {
            return Err(format!("`${{{}}}` is not a variable's name", crate::text::cut(name, 40)));
        }
        // As a shell's `:-`: an empty variable takes the default too.
        match (var(name), default) {
            (Some(value), None) => out.push_str(&value),
            (Some(value), Some(_)) if !value.is_empty() => out.push_str(&value),
            (_, Some(default)) => out.push_str(default),
            (None, None) => {
                return Err(format!(
                    "the environment variable `{name}` is not set; set it, or write `${{{name}:-default}}`"
                ));
            }
        }
        rest = tail;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Result<String, String> {
        expand(text, &|name| match name {
            "A" => Some("1".into()),
            "EMPTY" => Some(String::new()),
            "TRICK" => Some("${A}".into()),
            _ => None,
        })
    }

    #[test]
    fn variables_and_defaults() {
        assert_eq!(with("x${A}y${A}"), Ok("x1y1".into()));
        assert_eq!(with("${B:-dflt}"), Ok("dflt".into()));
        assert_eq!(with("${B:-}"), Ok(String::new()));
        assert_eq!(with("${EMPTY:-z}"), Ok("z".into()));
        assert_eq!(with("${EMPTY}"), Ok(String::new()));
        assert_eq!(with("$${A} $A $"), Ok("${A} $A $".into()));
        assert_eq!(with("${TRICK}"), Ok("${A}".into()), "a value is not expanded again");
        assert!(with("${B}").unwrap_err().contains("`B` is not set"));
        assert!(with("${A").is_err());
        assert!(with("${}").is_err());
        assert!(with("${A-x}").is_err());
    }
}
