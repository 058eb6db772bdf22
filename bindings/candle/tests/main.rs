//! The operations against candle's own.

mod suite;
