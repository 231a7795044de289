//! Mode "lines": long-lived processes.

use super::support::{Place, handler, is_alive, queue, until};

fn place(script: &str, more: &str) -> Place {
    let more = format!("mode = \"lines\"\n{more}");
    let place =
        Place::with(&queue(&format!("retry = {{ max = 2, delay = \"10ms\" }}\n{}", handler("*", "h.sh", &more))));
    place.script("h.sh", script);
    place
}

const ID: &str = "id=${line#'{\"id\":\"'}; id=${id%%'\"'*}";

#[test]
fn one_process_answers_many_messages() {
    let place = place(
        &format!(
            "echo $$ >>pids\nwhile IFS= read -r line; do echo \"$line\" >>seen; {ID}\n\
             case $line in *'\"n\":1'*) echo '{{\"id\":\"'$id'\",\"fail\":\"one\"}}' ;; \
             *'\"attempt\":1,'*'\"n\":2'*) echo '{{\"id\":\"'$id'\",\"retry\":\"two\",\"after\":\"50ms\"}}' ;; \
             *) echo '{{\"id\":\"'$id'\",\"ok\":true}}' ;; esac; done\necho end >>pids"
        ),
        "",
    );
    for n in 0..5 {
        place.postroom(&format!("send orders {{\"n\":{n}}} --type t --id m{n} --key k --header a=b")).exits(0);
    }
    let receipt = place.postroom("run --until-empty --json").exits(0).last();
    assert_eq!(receipt["receipt"]["acked"], 4, "{receipt}");
    assert_eq!((&receipt["receipt"]["retried"], &receipt["receipt"]["failed"]), (&1.into(), &1.into()));
    assert_eq!(place.lines("pids").len(), 2, "one process, which came to its own end");
    let seen: Vec<serde_json::Value> =
        place.lines("seen").iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(seen.len(), 6);
    assert_eq!(seen[0]["id"], "m0");
    assert_eq!(seen[0]["type"], "t");
    assert_eq!((&seen[0]["attempt"], &seen[0]["key"], &seen[0]["data"]["n"]), (&1.into(), &"k".into(), &0.into()));
    assert_eq!(seen[0]["headers"]["a"], "b");
    let failed = place.postroom("failed list --json").exits(0).json();
    assert_eq!((&failed[0]["id"], &failed[0]["error"]), (&"m1".into(), &"one".into()));
}

#[test]
fn a_process_that_dies_or_talks_nonsense_errs_its_messages_and_is_started_again() {
    let place = place(
        &format!(
            "echo $$ >>pids\nwhile IFS= read -r line; do {ID}\ncase $line in \
             *die*) echo last words >&2; exit 3 ;; *nonsense*) echo hello ;; *other*) echo '{{\"id\":\"zz\",\"ok\":true}}' ;; \
             *) echo '{{\"id\":\"'$id'\",\"ok\":true}}' ;; esac; done"
        ),
        "",
    );
    for body in ["\"die\"", "\"fine\"", "\"nonsense\"", "\"other\""] {
        place.postroom(&format!("send orders {body} --id {}", body.trim_matches('"'))).exits(0);
    }
    let receipt = place.postroom("run --until-empty --json").exits(0).last();
    assert_eq!((&receipt["receipt"]["acked"], &receipt["receipt"]["failed"]), (&1.into(), &3.into()), "{receipt}");
    let failed = place.postroom("failed list --json").exits(0).json();
    let error = |id: &str| failed.iter().find(|one| one["id"] == id).unwrap()["error"].as_str().unwrap().to_string();
    assert!(error("die").contains("exit code 3") && error("die").contains("last words"), "{}", error("die"));
    assert!(error("nonsense").contains("not an answer"), "{}", error("nonsense"));
    assert!(error("other").contains("zz"), "{}", error("other"));
    assert!(place.lines("pids").len() >= 9);
}

#[test]
fn a_window_lets_a_process_hold_several() {
    let place = place(
        &format!(
            "n=0; ids=\nwhile IFS= read -r line; do {ID}\nids=\"$id $ids\"; n=$((n+1)); if [ $n = 4 ]; then for i in $ids; do echo '{{\"id\":\"'$i'\",\"ok\":true}}'; done; n=0; ids=; fi; done"
        ),
        "window = 4\ntimeout = \"5s\"",
    );
    for _ in 0..8 {
        place.postroom("send orders {}").exits(0);
    }
    let receipt = place.postroom("run --until-empty --json").exits(0).last();
    assert_eq!(receipt["receipt"]["acked"], 8, "{receipt}");
    assert_eq!(receipt["receipt"]["retried"], 0);
}

#[test]
fn a_message_that_takes_too_long_ends_its_process() {
    let place = place(
        &format!(
            "echo $$ >>pids\nwhile IFS= read -r line; do {ID}\ncase $line in *slow*'\"attempt\":1'*|*'\"attempt\":1'*slow*) sleep 64 ;; esac; echo '{{\"id\":\"'$id'\",\"ok\":true}}'; done"
        ),
        "timeout = \"500ms\"",
    );
    place.postroom("send orders \"slow\"").exits(0);
    let receipt = place.postroom("run --until-empty --json").exits(0).last();
    assert_eq!((&receipt["receipt"]["acked"], &receipt["receipt"]["retried"]), (&1.into(), &1.into()), "{receipt}");
    let pids = place.lines("pids");
    assert_eq!(pids.len(), 2);
    until("the first is gone", || !is_alive(&pids[0]));
}

#[test]
fn kill_9_of_the_runtime_ends_the_process() {
    let place = place("echo $$ >>pids\nwhile IFS= read -r line; do sleep 65; done", "concurrency = 2");
    place.postroom("send orders 1").exits(0);
    place.postroom("send orders 2").exits(0);
    let running = place.start("run");
    until("both run", || place.lines("pids").len() == 2);
    let pids = place.lines("pids");
    running.kill();
    until("both are gone", || pids.iter().all(|pid| !is_alive(pid)));
}
