//! The environment of a command.

use postroom_core::Envelope;

/// The beginning of a header's variable.
pub(super) const HEADER: &str = "POSTROOM_HEADER_";
/// The kernel refuses a variable above 128 KiB; a longer header is left out.
const LONGEST: usize = 100 * 1024;
/// And all of them together above about 2 MiB.
const MOST: usize = 1024 * 1024;

/// The variables of a delivery. What a message does not have is empty.
pub(super) fn of(envelope: &Envelope, attempt: u32, transport: &str) -> Vec<(String, String)> {
    let text = |value: Option<&str>| value.unwrap_or_default().to_string();
    let mut all: Vec<(String, String)> = [
        ("ID", envelope.id.to_string()),
        ("TYPE", text(envelope.message_type.as_deref())),
        ("TRANSPORT", transport.to_string()),
        ("ATTEMPT", attempt.to_string()),
        ("KEY", text(envelope.key.as_deref())),
        ("TIME", envelope.time.map(crate::text::time).unwrap_or_default()),
        ("CONTENT_TYPE", text(envelope.content_type.as_deref())),
    ]
    .map(|(name, value)| (format!("POSTROOM_{name}"), value))
    .into();
    let mut size = 0;
    for (name, value) in envelope.stamps.iter() {
        let name = variable(name);
        size += name.len() + value.len();
        if value.len() > LONGEST || size > MOST || all.iter().any(|(other, _)| *other == name) {
            continue;
        }
        all.push((name, String::from_utf8_lossy(value).into_owned()));
    }
    for (_, value) in &mut all {
        // No variable can hold a NUL.
        if value.contains('\0') {
            *value = value.replace('\0', "\u{fffd}");
        }
    }
    all
}

/// `x-tenant.id` becomes `POSTROOM_HEADER_X_TENANT_ID`.
fn variable(header: &str) -> String {
    let name = header.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
    HEADER.chars().chain(name).collect()
}

#[cfg(test)]
mod tests {
    use postroom_core::{MessageId, TypeName};

    use super::*;

    #[test]
    fn headers_become_variables() {
        let mut envelope = Envelope::with_id(MessageId::new("i\0d").unwrap(), "x");
        envelope.message_type = TypeName::new("order.placed").ok();
        envelope.time = Some(0);
        envelope.stamps.push("x-tenant.id", "7");
        envelope.stamps.push("X_tenant-id", "the first wins");
        envelope.stamps.push("a=b\0", &b"\xff\0"[..]);
        envelope.stamps.push("long", vec![b'x'; LONGEST + 1]);
        let all = of(&envelope, 2, "orders");
        let get = |name: &str| all.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
        assert_eq!(get("POSTROOM_ID"), Some("i\u{fffd}d"));
        assert_eq!(get("POSTROOM_TYPE"), Some("order.placed"));
        assert_eq!(get("POSTROOM_ATTEMPT"), Some("2"));
        assert_eq!(get("POSTROOM_TRANSPORT"), Some("orders"));
        assert_eq!(get("POSTROOM_KEY"), Some(""));
        assert_eq!(get("POSTROOM_TIME"), Some("1970-01-01T00:00:00Z"));
        assert_eq!(get("POSTROOM_HEADER_X_TENANT_ID"), Some("7"));
        assert_eq!(get("POSTROOM_HEADER_A_B_"), Some("\u{fffd}\u{fffd}"));
        assert_eq!(get("POSTROOM_HEADER_LONG"), None);
        assert!(all.iter().all(|(name, _)| !name.contains(['=', '\0'])));
    }
}
