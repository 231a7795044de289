//! codecs
