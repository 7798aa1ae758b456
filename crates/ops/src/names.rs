//! Names of options as texts.

/// A text that names no option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected one of {expected}, found '{found}'")]
pub struct UnknownName {
    /// The names there are.
    pub expected: String,
    /// The text that was given.
    pub found: String,
}

/// Gives an enum of options its names: `ALL`, `name`, `Display` and `FromStr` from one list.
macro_rules! named {
    ($type:ident { $($variant:ident => $name:literal,)* }) => {
        impl $type {
            /// All there are, in the order in which they are listed to users.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in pipeline files and on the command line.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::UnknownName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|option| option.name() == text).ok_or_else(|| $crate::UnknownName {
                    expected: [$($name),*].join(", "),
                    found: text.to_owned(),
                })
            }
        }
    };
}

pub(crate) use named;
