//! C34: the figures are true, and every failed record is found, shown, retried and removed.

use serde_json::{Value, json};

use super::support::{Place, handler, queue, until};

/// Undecodable is what a typed handler says, so one record comes from a node in this process.
mod typed {
    use postroom::{HandlerOptions, Node, Received, open};

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Typed {
        n: u64,
    }
    postroom::message!(Typed = "bad.typed");

    pub(super) fn handle(dsn: &str) {
        actix_rt::System::new().block_on(async {
            let node = Node::builder()
                .transport(open("orders", dsn).unwrap())
                .handle(HandlerOptions::of::<Typed>("orders").unwrap(), |_: Received<Typed>| async {
                    Ok::<(), std::io::Error>(())
                })
                .start()
                .await
                .unwrap();
            let orders = node.transport("orders").unwrap();
            let store = orders.place().default_failure();
            while orders.count(&store).await.unwrap().unwrap().waiting == Some(0) {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            node.stop().await;
        });
    }
}

fn field(list: &[Value], key: &str) -> Vec<String> {
    list.iter().map(|one| one[key].as_str().unwrap_or("null").to_string()).collect()
}

#[test]
fn c34_figures_and_records_are_true() {
    let slow = handler("slow", "slow.sh", "concurrency = 2");
    let place = Place::with(&queue(&format!(
        "prefetch = 2\n{}{}{slow}",
        handler("bad.*", "bad.sh", ""),
        handler("ok", "ok.sh", "")
    )));
    place.script("bad.sh", "echo refused: $POSTROOM_TYPE >&2; exit 65");
    place.script("ok.sh", "exit 0");
    place.script("slow.sh", "echo $$ >>slow; sleep 66");
    place.postroom_with("send orders --id undecodable --type bad.typed", b"\xff\x00{").exits(0);
    typed::handle(&format!("sqlite:{}?queue=orders", place.path("orders.db").display()));
    let bodies = |n: usize| "{}\n".repeat(n).into_bytes();
    place.postroom_with("send orders --ndjson --type bad.a", &bodies(60)).exits(0);
    place.postroom_with("send orders --ndjson --type bad.b", &bodies(60)).exits(0);
    place.postroom_with("send orders --ndjson --type ok", &bodies(10)).exits(0);
    place.postroom("run --until-empty --json").exits(0);
    place.postroom_with("send orders --ndjson --type slow", &bodies(9)).exits(0);
    place.postroom_with("send orders --ndjson --type slow --delay 10m", &bodies(3)).exits(0);
    let running = place.start("run --grace 0s");
    until("two are in flight", || place.lines("slow").len() == 2);

    let figures = place.stats("orders");
    let wanted = json!({"waiting": 7, "in_flight": 2, "delayed": 3, "failed": 121, "exact": true});
    for (name, figure) in wanted.as_object().unwrap() {
        assert_eq!(figures[name], *figure, "{figures}");
    }
    running.kill();

    let list = |args: &str| place.postroom(&format!("failed list --json {args}")).exits(0).json();
    let all = list("");
    assert_eq!(all.len(), 121);
    assert_eq!(list("--limit 50").len(), 50);
    let of_b = list("--type bad.b --limit 50");
    assert!(of_b.len() == 50 && of_b.iter().all(|one| one["type"] == "bad.b"), "the filter comes before the limit");
    assert_eq!(list("--type bad.b").len(), 60);
    assert_eq!(list("--type bad.*").len(), 121);
    assert_eq!(list("--reason undecodable").len(), 1);
    assert_eq!(list("--reason final --from orders").len(), 120);
    assert_eq!(list("--since 1h").len(), 121);
    let first = list("--type bad.a --limit 1").remove(0);
    assert_eq!(
        (&first["from"], &first["error"], &first["size"]),
        (&json!("orders"), &json!("refused: bad.a"), &json!(2))
    );

    let shown = place.postroom("failed show undecodable --json").exits(0).last();
    assert_eq!((&shown["reason"], &shown["body_base64"]), (&json!("undecodable"), &json!("/wB7")));
    let record = shown["record"].as_str().unwrap().to_string();
    assert_eq!(place.postroom(&format!("failed show {record} --json")).exits(0).last()["id"], "undecodable");
    assert!(place.postroom("failed show undecodable").exits(0).out.contains("3 bytes that are not text"));

    let done = place.postroom("failed show nothing --json").exits(5);
    assert_eq!(done.errors()[0]["kind"], "not_found");
    let (a, b) = (field(&list("--type bad.a"), "record"), field(&list("--type bad.b"), "record"));
    // An id that is not there exits 5; the others named with it are still processed.
    let done = place.postroom(&format!("failed remove --json {} nothing {}", a[0], b[0])).exits(5);
    assert_eq!(done.json().len(), 2);
    assert_eq!(list("").len(), 119);
    let done = place.postroom(&format!("failed retry --json nothing {} {}", a[1], b[1])).exits(5);
    assert_eq!(field(&done.json(), "record"), [a[1].clone(), b[1].clone()]);
    assert_eq!(place.stats("orders")["failed"], 117);

    place.postroom("failed remove --all --type bad.b").exits(2);
    assert_eq!(place.postroom("failed remove --all --type bad.b --yes --json").exits(0).json().len(), 58);
    let rest = list("");
    assert_eq!(rest.len(), 59);
    let done = place.postroom("failed retry --all --json --rate 1000/s").exits(0);
    assert_eq!(done.json().len(), 59);
    assert_eq!(place.stats("orders")["failed"], 0);
}

#[test]
fn a_retry_keeps_the_id_and_the_bytes_and_begins_with_a_fresh_budget() {
    let place = Place::with(&queue(&format!("retry = {{ max = 1, delay = \"10ms\" }}\n{}", handler("*", "h.sh", ""))));
    place.script("h.sh", "echo $POSTROOM_ATTEMPT >>attempts; cat >body; exit 1");
    place.postroom_with("send orders --id m1 --type t --key k --header a=b", b"\xff\x00\n").exits(0);
    place.postroom("run --until-empty --json").exits(0);
    let shown = place.postroom("failed show m1 --json").exits(0).last();
    assert_eq!((&shown["attempts"], &shown["headers"]["a"], &shown["key"]), (&2.into(), &"b".into(), &"k".into()));
    let history = shown["history"].as_array().unwrap();
    assert_eq!(history.len(), 2);
    assert!(history[0]["time"].as_str().unwrap().ends_with('Z') && history[0]["error_kind"] == "error");
    place.postroom("failed show m1 --raw").exits(0);
    let done = place.postroom("failed retry m1").exits(0);
    assert!(done.out.contains("retried 1 record"), "{}", done.out);
    place.postroom("run --until-empty --json").exits(0);
    assert_eq!(place.lines("attempts"), ["1", "2", "1", "2"]);
    assert_eq!(std::fs::read(place.path("body")).unwrap(), b"\xff\x00\n");
    let again = place.postroom("failed show m1 --json").exits(0).last();
    assert_eq!((&again["round"], &again["id"]), (&1.into(), &"m1".into()));
    assert_ne!(again["record"], shown["record"]);
}

#[test]
fn a_shared_failure_transport_tells_who_is_who_and_text_is_escaped() {
    let place = Place::with(
        "[transports.a]\ndsn = \"sqlite:x.db?queue=a\"\nfailure = \"kept\"\n[transports.b]\ndsn = \"sqlite:x.db?queue=b\"\nfailure = \"kept\"\n\
         [transports.kept]\ndsn = \"sqlite:kept.db?queue=kept\"\n[[handlers]]\nfrom = \"a\"\ntype = \"*\"\nexec = [\"./h.sh\"]\n\
         [[handlers]]\nfrom = \"b\"\ntype = \"*\"\nexec = [\"./h.sh\"]\n",
    );
    place.script("h.sh", "printf '\\033[31mred\\a\\n' >&2; exit 65");
    place.postroom("send a x --id same").exits(0);
    place.postroom("send b x --id same").exits(0);
    place.postroom("run --until-empty --json").exits(0);
    assert_eq!((&place.stats("a")["failed"], &place.stats("b")["failed"]), (&1.into(), &1.into()));
    let kept = place.stats("kept");
    assert_eq!((&kept["waiting"], &kept["failed"]), (&2.into(), &Value::Null));
    assert_eq!(place.postroom("failed list --from a --json").exits(0).json().len(), 1);
    assert_eq!(place.postroom("failed show same --json").exits(0).json().len(), 2);
    place.postroom("failed show same --raw").exits(2);
    for human in [place.postroom("failed list").exits(0), place.postroom("failed show same").exits(0)] {
        assert!(!human.out.contains(['\u{1b}', '\u{7}']) && human.out.contains("\\u{1b}[31mred"), "{}", human.out);
    }
    assert_eq!(place.postroom("failed retry same --json").exits(0).json().len(), 2);
    assert_eq!((&place.stats("a")["waiting"], &place.stats("b")["waiting"]), (&1.into(), &1.into()));
    place.postroom("send kept x").exits(2);
    place.postroom("failed list --from nowhere").exits(5);
}

#[test]
fn failure_none_is_no_store() {
    let place = Place::with(&queue("failure = \"none\"\n"));
    place.postroom("setup").exits(0);
    assert_eq!(place.stats("orders")["failed"], Value::Null);
    place.postroom("failed list").exits(0);
    place.postroom("failed list --from orders").exits(2);
}
