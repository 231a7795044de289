use std::path::Path;

use postroom_core::{Dsn, Name};
use postroom_sqlite::SqliteConfig;

fn read(dsn: &str) -> Result<SqliteConfig, String> {
    let mut dsn = Dsn::parse(dsn).unwrap();
    SqliteConfig::from_dsn(&mut dsn, Name::new("ns").ok().as_ref()).map_err(|error| error.to_string())
}

#[test]
fn a_dsn_names_the_file_and_the_options() {
    assert_eq!(read("sqlite:a%20b/q.db?queue=q").unwrap().path(), Path::new("a b/q.db"));
    let plain = SqliteConfig::new("/q.db").in_namespace(Name::new("ns").ok());
    assert_eq!(read("sqlite:///q.db?queue=q&sync=full&busy=5s").unwrap(), plain);
    let normal = plain.sync(postroom_sqlite::Sync::Normal).busy(std::time::Duration::from_millis(250));
    assert_eq!(read("sqlite:/q.db?sync=normal&busy=250ms").unwrap(), normal);
}

#[test]
fn a_wrong_dsn_says_what_is_wrong() {
    for (dsn, said) in [
        ("sqlite://host/q.db", "no host"),
        ("sqlite:?queue=q", "names no file"),
        ("sqlite:folder/", "names no file"),
        ("sqlite::memory:", "memory broker"),
        ("sqlite:q.db?sync=off", "`full` or `normal`"),
        ("sqlite:q.db?busy=5", "not a duration"),
        ("sqlite:q.db?sink=full", "did you mean `sync`"),
        ("redis://host", "begins with `sqlite:`"),
    ] {
        let error = read(dsn).unwrap_err();
        assert!(error.contains(said), "{dsn}: {error}");
    }
}
