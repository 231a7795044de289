//! The command line and the config: what is refused before anything is touched.

use super::support::{Place, handler, queue};

#[test]
fn usage_errors_exit_2_in_json_where_json_was_asked_for() {
    let place = Place::new();
    place.postroom("nonsense").exits(2);
    place.postroom("").exits(2);
    let done = place.postroom("--json run --limit 0").exits(2);
    assert_eq!(done.errors()[0]["kind"], "usage");
    assert!(done.out.is_empty());
    let done = place.postroom("failed retry r1 --type t --json").exits(2);
    assert_eq!(done.errors()[0]["kind"], "usage");
    assert!(place.postroom("--help").exits(0).out.contains("postroom"));
    assert!(!place.postroom("--help").out.contains("__child"));
    place.postroom("--version").exits(0);
}

#[test]
fn a_missing_config_is_named() {
    let place = Place::new();
    for command in ["check", "run", "stats", "send orders x", "failed list", "-c other.toml check"] {
        let done = place.postroom(command).exits(2);
        assert!(done.err.contains(".toml"), "{command}: {}", done.err);
    }
}

#[test]
fn all_mistakes_of_a_config_come_at_once_and_nothing_is_touched() {
    let place = Place::with(&queue(&format!(
        "leese = \"1m\"\nlease = \"500ms\"\nfailure = \"faild\"\n\n[transports.failed]\ndsn = \"sqlite:orders.db?queue=failed\"\n{}{}",
        handler("t", "x", ""),
        handler("t", "x", "")
    )));
    for command in ["check", "run", "setup", "stats", "send orders x"] {
        let done = place.postroom(command).exits(2);
        for part in [
            "postroom.toml:3: [transports.orders] has an unknown key `leese`; did you mean `lease`?",
            "postroom.toml:4: [transports.orders]: `lease = \"500ms\"`",
            "postroom.toml:5: [transports.orders]: `failure = \"faild\"` names no transport; did you mean `failed`?",
            "can never match",
        ] {
            assert!(done.err.contains(part), "{part}\n{}", done.err);
        }
    }
    assert!(!place.path("orders.db").exists());
    let done = place.postroom("check --json").exits(2);
    assert_eq!(done.errors()[0]["kind"], "config");
    assert!(done.errors()[0]["message"].as_str().unwrap().contains("postroom.toml:3"));
}

#[test]
fn a_password_is_never_shown() {
    let place = Place::with("[transports.a]\ndsn = \"nosuch://user:hunter2@host/0?queue=q\"\n");
    for command in ["check", "stats nosuch://user:hunter2@host/0?queue=q", "send sqlite://user:hunter2@@h?queue=q x"] {
        for json in ["", " --json"] {
            let done = place.postroom(&format!("{command}{json}")).exits(2);
            assert!(!done.err.contains("hunter2") && !done.out.contains("hunter2"), "{}", done.err);
        }
    }
}

#[test]
fn init_writes_a_config_that_works_and_overwrites_nothing() {
    let place = Place::new();
    place.postroom("init").exits(0);
    place.postroom("init").exits(2);
    place.postroom("check").exits(0);
    place.postroom("send jobs {} --type job.hello").exits(0);
    let done = place.postroom("run --until-empty --json").exits(0);
    assert_eq!(done.last()["receipt"]["acked"], 1);
    assert!(done.err.contains("attempt 1"), "{}", done.err);
    let other = Place::new();
    other.postroom("init sub/dir").exits(0);
    assert!(other.path("sub/dir/postroom.toml").exists());
}

#[test]
fn check_tells_and_changes_nothing() {
    let place = Place::with(&queue(&handler("t", "gone.sh", "")));
    let lines = place.postroom("check --json").exits(0).json();
    assert!(lines[0]["topology"].as_str().unwrap().starts_with("missing"), "{}", lines[0]);
    assert!(lines[1]["warning"].as_str().unwrap().contains("gone.sh"));
    assert!(!place.path("orders.db").exists());
    place.postroom("stats orders").exits(5);
    place.postroom("send sqlite:orders.db?queue=other x").exits(0);
    let lines = place.postroom("check --json").exits(0).json();
    assert!(lines[0]["topology"].as_str().unwrap().starts_with("missing"), "{}", lines[0]);
    place.postroom("setup").exits(0);
    let there = place.postroom("check --json").exits(0).json().remove(0);
    assert_eq!((&there["transport"], &there["broker"]), (&"orders".into(), &"sqlite".into()));
    assert_eq!((&there["topology"], &there["durability"]), (&"there".into(), &"power".into()));
    assert_eq!(there["capabilities"]["delay"], true);
    assert!(place.postroom("check").exits(0).out.contains("a power cut"));
}

#[test]
fn completions_are_printed() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(Place::new().postroom(&format!("completions {shell}")).exits(0).out.contains("postroom"));
    }
}

#[test]
fn variables_are_expanded_and_relative_paths_start_at_the_configs_folder() {
    let place = Place::new();
    std::fs::create_dir(place.path("sub")).unwrap();
    place.write("sub/p.toml", "[transports.orders]\ndsn = \"sqlite:${DB:-x.db}?queue=orders\"\n");
    place.postroom("-c sub/p.toml send orders x").exits(0);
    assert!(place.path("sub/x.db").exists());
    place.write("sub/p.toml", "[transports.orders]\ndsn = \"sqlite:${NO_SUCH_VARIABLE}?queue=orders\"\n");
    let done = place.postroom("-c sub/p.toml send orders x").exits(2);
    assert!(done.err.contains("sub/p.toml:2:") && done.err.contains("NO_SUCH_VARIABLE"), "{}", done.err);
}
