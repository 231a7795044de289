use clap::CommandFactory;

use super::*;

fn parse(line: &str) -> Result<Cli, i32> {
    let cli = Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.exit_code())?;
    cli.check().map_err(|_| 2)?;
    Ok(cli)
}

#[test]
fn the_declarations_hold_together() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_of_the_contract_parses() {
    for line in [
        "postroom init",
        "postroom init dir",
        "postroom check -c x.toml --json",
        "postroom --json check --log debug --color never",
        "postroom setup",
        "postroom run --only a --only b --limit 3 --until-empty --for 1h30m --grace 5s --fail-fast",
        "postroom send orders",
        "postroom send orders {} --type order.placed --id 1 --key k --header a=b --header c=d=e --delay 5m --content-type text/plain",
        "postroom send sqlite:x.db?queue=q -f x --ndjson",
        "postroom send orders --envelopes",
        "postroom stats",
        "postroom stats a b --watch",
        "postroom peek orders --state in-flight --limit 5",
        "postroom failed list --from orders --type t --reason final --since 1h --limit 50",
        "postroom failed show r1 --raw",
        "postroom failed retry r1 r2",
        "postroom failed retry --all --from orders --type t --reason crashed --rate 50/s",
        "postroom failed remove r1 --yes",
        "postroom failed remove --all --yes",
        "postroom group list topic",
        "postroom group remove topic g --yes",
        "postroom demo",
        "postroom completions bash",
    ] {
        assert!(parse(line).is_ok(), "{line}");
    }
}

#[test]
fn usage_errors_exit_2() {
    for line in [
        "postroom",
        "postroom nonsense",
        "postroom run --limit 0",
        "postroom run --for 5",
        "postroom send",
        "postroom send q b -f x",
        "postroom send q --ndjson --envelopes",
        "postroom send q --type a/b",
        "postroom send q --header nothing",
        "postroom failed retry",
        "postroom failed retry r --all",
        "postroom failed retry r --type t",
        "postroom failed list --reason because",
        "postroom failed retry --all --rate 0/s",
        "postroom peek q --state gone",
        "postroom group remove t bad--name",
        "postroom completions nosuch",
    ] {
        assert_eq!(parse(line).map(|_| ()), Err(2), "{line}");
    }
}
