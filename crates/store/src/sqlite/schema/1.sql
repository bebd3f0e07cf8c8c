CREATE TABLE users (
    id BLOB PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    token_digest BLOB NOT NULL,
    front_door_key BLOB NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER,
    quota_bytes INTEGER,
    quota_period TEXT,
    may_udp INTEGER NOT NULL,
    may_tcp INTEGER NOT NULL,
    may_ip INTEGER NOT NULL,
    is_disabled INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE usage (
    user BLOB NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    day INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (user, day, epoch)
) STRICT, WITHOUT ROWID;
