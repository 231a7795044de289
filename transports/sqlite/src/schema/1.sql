CREATE TABLE postroom_schema (version INTEGER NOT NULL);
INSERT INTO postroom_schema VALUES (1);

CREATE TABLE postroom_place (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace  TEXT NOT NULL DEFAULT '',
    kind       TEXT NOT NULL CHECK (kind IN ('queue', 'topic', 'group', 'store')),
    name       TEXT NOT NULL,
    group_name TEXT NOT NULL DEFAULT '',
    topic      INTEGER REFERENCES postroom_place (id),
    UNIQUE (namespace, kind, name, group_name)
);
CREATE INDEX postroom_place_topic ON postroom_place (topic) WHERE topic IS NOT NULL;

CREATE TABLE postroom_message (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    place        INTEGER NOT NULL REFERENCES postroom_place (id),
    state        INTEGER NOT NULL DEFAULT 0 CHECK (state IN (0, 1, 2)),
    at           INTEGER NOT NULL DEFAULT 0,
    since        INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    generation   INTEGER NOT NULL DEFAULT 0,
    delivered    INTEGER NOT NULL DEFAULT 0,
    owner        TEXT,
    message_id   TEXT NOT NULL DEFAULT (lower(hex(randomblob(16)))),
    type         TEXT,
    key          TEXT,
    content_type TEXT,
    headers      TEXT,
    record       TEXT,
    body         BLOB NOT NULL,
    CHECK (state <> 0 OR at = 0)
);
CREATE INDEX postroom_message_line ON postroom_message (place, state, at);
CREATE INDEX postroom_message_id ON postroom_message (message_id);
CREATE UNIQUE INDEX postroom_message_record ON postroom_message (place, record) WHERE record IS NOT NULL;
