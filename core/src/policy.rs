//! The one place that turns an outcome into a verdict, and the retry arithmetic.
