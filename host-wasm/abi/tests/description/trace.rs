//! Shapes of serde types, as postcard encodes them.
//!
//! A type is decoded from a deserializer without data, which answers each request with a value of the requested type and
//! notes the request.

use serde::de::value::{Error, U32Deserializer};
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};
use serde::{Deserialize, Serialize, forward_to_deserialize_any};

/// Type of a field.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Shape {
    /// A primitive type, or the name of a described one.
    Name(&'static str),
    /// A value that may be absent.
    Option {
        /// Its type.
        option: Box<Shape>,
    },
}

impl Shape {
    /// Returns the name of the type, or of the one in an option.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Shape::Name(name) => name,
            Shape::Option { option } => option.name(),
        }
    }
}

/// Field of a record. Those of tuples have no name.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: Option<&'static str>,
    pub(crate) shape: Shape,
}

/// Variant of an enum. Its number is its position.
#[derive(Debug, Default)]
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    pub(crate) fields: Vec<Field>,
}

/// Structure of a named type.
#[derive(Debug)]
pub(crate) enum Kind {
    Newtype(Shape),
    Struct(Vec<Field>),
    Enum(Vec<Variant>),
}

/// Returns a type's name and structure. Named types inside are left as names.
pub(crate) fn describe<T: Deserialize<'static>>() -> (&'static str, Kind) {
    let (name, kind) = trace::<T>(0);
    let Kind::Enum(mut variants) = kind else { return (name, kind) };
    for (number, variant) in variants.iter_mut().enumerate().skip(1) {
        let (_, Kind::Enum(mut traced)) = trace::<T>(number) else { unreachable!("{name} is an enum") };
        *variant = traced.swap_remove(number);
    }
    (name, Kind::Enum(variants))
}

/// Decodes a type, and its variant of that number if it is an enum.
fn trace<T: Deserialize<'static>>(variant: usize) -> (&'static str, Kind) {
    let mut seen = None;
    let mut shape = Shape::Name("");
    let tracer = Tracer { shape: &mut shape, kind: &mut seen, variant };
    T::deserialize(tracer).unwrap_or_else(|e| panic!("{}: {e}", std::any::type_name::<T>()));
    (shape.name(), seen.unwrap_or_else(|| panic!("{} has no name", shape.name())))
}

/// Deserializer without data, which notes the shape of one value.
struct Tracer<'t> {
    shape: &'t mut Shape,
    kind: &'t mut Option<Kind>,
    /// Variant to decode if the value is an enum.
    variant: usize,
}

/// Decodes a value inside another one.
fn inner<'de, S: DeserializeSeed<'de>>(seed: S) -> Result<(S::Value, Shape), Error> {
    let mut shape = Shape::Name("");
    let value = seed.deserialize(Tracer { shape: &mut shape, kind: &mut None, variant: 0 })?;
    Ok((value, shape))
}

/// Methods of primitive types: their name in the description, and the value.
macro_rules! primitives {
    ($($method:ident $name:literal $visit:ident($value:expr),)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            *self.shape = Shape::Name($name);
            visitor.$visit($value)
        }
    )*};
}

impl<'de> Deserializer<'de> for Tracer<'_> {
    type Error = Error;

    primitives! {
        deserialize_bool "bool" visit_bool(false),
        deserialize_u8 "u8" visit_u8(0),
        deserialize_u32 "u32" visit_u32(0),
        deserialize_u64 "u64" visit_u64(0),
        deserialize_i32 "i32" visit_i32(0),
        deserialize_str "str" visit_borrowed_str(""),
        deserialize_bytes "bytes" visit_borrowed_bytes(b""),
    }

    forward_to_deserialize_any! {
        i8 i16 i64 i128 u16 u128 f32 f64 char string byte_buf unit unit_struct seq tuple tuple_struct map identifier
        ignored_any
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(de::Error::custom("a type that the description has no name for"))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut option = Shape::Name("");
        let value = visitor.visit_some(Tracer { shape: &mut option, kind: &mut None, variant: 0 })?;
        *self.shape = Shape::Option { option: Box::new(option) };
        Ok(value)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut inside = Shape::Name("");
        let value =
            visitor.visit_newtype_struct(Tracer { shape: &mut inside, kind: &mut None, variant: 0 })?;
        *self.shape = Shape::Name(name);
        *self.kind = Some(Kind::Newtype(inside));
        Ok(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (value, fields) = Fields::visit(fields.iter().copied().map(Some).collect(), visitor)?;
        *self.shape = Shape::Name(name);
        *self.kind = Some(Kind::Struct(fields));
        Ok(value)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut variants: Vec<_> =
            variants.iter().map(|&name| Variant { name, ..Variant::default() }).collect();
        let chosen = &mut variants[self.variant].fields;
        let value = visitor.visit_enum(EnumAccess { number: self.variant as u32, fields: chosen })?;
        *self.shape = Shape::Name(name);
        *self.kind = Some(Kind::Enum(variants));
        Ok(value)
    }
}

/// Fields of a struct or a tuple variant.
struct Fields {
    names: std::vec::IntoIter<Option<&'static str>>,
    seen: Vec<Field>,
}

impl Fields {
    fn visit<'de, V: Visitor<'de>>(
        names: Vec<Option<&'static str>>,
        visitor: V,
    ) -> Result<(V::Value, Vec<Field>), Error> {
        let mut fields = Fields { names: names.into_iter(), seen: Vec::new() };
        let value = visitor.visit_seq(&mut fields)?;
        Ok((value, fields.seen))
    }
}

impl<'de> de::SeqAccess<'de> for Fields {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(name) = self.names.next() else { return Ok(None) };
        let (value, shape) = inner(seed)?;
        self.seen.push(Field { name, shape });
        Ok(Some(value))
    }
}

/// One variant of an enum.
struct EnumAccess<'t> {
    number: u32,
    fields: &'t mut Vec<Field>,
}

impl<'de, 't> de::EnumAccess<'de> for EnumAccess<'t> {
    type Error = Error;
    type Variant = EnumAccess<'t>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        let number: U32Deserializer<Error> = self.number.into_deserializer();
        Ok((seed.deserialize(number)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for EnumAccess<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        let (value, shape) = inner(seed)?;
        self.fields.push(Field { name: None, shape });
        Ok(value)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        let (value, fields) = Fields::visit(vec![None; len], visitor)?;
        *self.fields = fields;
        Ok(value)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (value, fields) = Fields::visit(fields.iter().copied().map(Some).collect(), visitor)?;
        *self.fields = fields;
        Ok(value)
    }
}
