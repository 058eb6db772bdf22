//! The macro that makes an enum from a table: a variant for each row, found by its name.

/// Declares an enum whose variants are the rows of a table. A row has a field `name`.
#[macro_export]
macro_rules! table {
    ($(#[$m:meta])* $name:ident: $row:ident { $($(#[$vm:meta])* $variant:ident = $value:expr,)+ }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vm])* $variant),+ }

        impl $name {
            /// Every one, in the order of the table.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The properties that hold everywhere.
            pub const fn row(self) -> &'static $row {
                const ROWS: &[$row] = &[$($value),+];
                &ROWS[self as usize]
            }

            /// Its name in messages and in the text forms.
            pub const fn name(self) -> &'static str {
                self.row().name
            }

            /// The inverse of `name`.
            pub fn from_name(name: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|v| v.name() == name)
            }

            /// The name of its variant in Rust.
            pub const fn variant(self) -> &'static str {
                match self { $($name::$variant => stringify!($variant)),+ }
            }
        }
    };
}
