//! dsn
