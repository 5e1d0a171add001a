//! Log, if there is one.

macro_rules! log {
    ($level:ident, $text:literal $(, $value:expr)* $(,)?) => {{
        #[cfg(feature = "defmt")]
        defmt::$level!($text $(, $value)*);
        #[cfg(not(feature = "defmt"))]
        let _ = ($(&$value,)*);
    }};
}

macro_rules! info { ($($said:tt)*) => { log!(info, $($said)*) }; }
macro_rules! warn { ($($said:tt)*) => { log!(warn, $($said)*) }; }
macro_rules! error { ($($said:tt)*) => { log!(error, $($said)*) }; }
