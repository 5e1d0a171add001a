//! Messages as a reader of protocols sees them: a name and fields. Knows nothing of the core, which it is to judge.

use std::fmt;

/// One message, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Whether it is PMI-2 in its counted form.
    pub counted: bool,
    /// `cmd` and everything behind it, in order, escapes undone.
    pub fields: Vec<(String, Vec<u8>)>,
}

impl Message {
    /// Takes a whole message apart: a line with its line feed, or a counted message with its count. Several lines,
    /// as answer `initack`, make one message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Message, String> {
        let (message, junk) = Message::captured(bytes)?;
        if junk.is_empty() {
            Ok(message)
        } else {
            Err(format!("junk in it: {:?}", junk.escape_ascii().to_string()))
        }
    }

    /// The same for what a real client said, who may count leftovers of its buffer behind the message; also those.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn captured(bytes: &[u8]) -> Result<(Message, &[u8]), String> {
        match bytes {
            [b'c', b'm', b'd', b'=', ..] => Ok((Message::lines(bytes)?, &[])),
            [b'm', b'c', b'm', b'd', b'=', ..] => Ok((Message::blocks(bytes)?, &[])),
            _ => Message::counted(bytes),
        }
    }

    fn lines(bytes: &[u8]) -> Result<Message, String> {
        let text = bytes.strip_suffix(b"\n").ok_or("no line feed at the end")?;
        let mut fields: Vec<(String, Vec<u8>)> = Vec::new();
        for word in text.split(|&b| b == b'\n' || b == b' ').filter(|word| !word.is_empty()) {
            match (field(word, unescape_backslash), fields.last_mut()) {
                (Ok(field), _) => fields.push(field),
                // Abort messages hold blanks.
                (Err(_), Some((_, value))) => {
                    value.push(b' ');
                    value.extend_from_slice(word);
                }
                (Err(e), None) => return Err(e),
            }
        }
        Ok(Message { counted: false, fields })
    }

    /// PMI-1's spawn, a block a program: fields stand on lines of their own, blanks are theirs, and nothing is escaped.
    fn blocks(bytes: &[u8]) -> Result<Message, String> {
        let text = bytes.strip_suffix(b"endcmd\n").ok_or("no endcmd at the end")?;
        let lines = text.split(|&b| b == b'\n').filter(|line| !line.is_empty() && *line != b"endcmd");
        let fields = lines.map(|line| field(line, <[u8]>::to_vec)).collect::<Result<Vec<_>, _>>()?;
        Ok(Message { counted: false, fields })
    }

    fn counted(bytes: &[u8]) -> Result<(Message, &[u8]), String> {
        let (count, body) = bytes.split_at_checked(6).ok_or("shorter than its count")?;
        let count = std::str::from_utf8(count).ok().and_then(|text| text.trim().parse::<usize>().ok());
        if count != Some(body.len()) {
            return Err(format!("the count is {count:?}, the message has {} bytes", body.len()));
        }
        let mut fields = Vec::new();
        let (mut start, mut at) = (0, 0);
        while at < body.len() {
            match (body[at], body.get(at + 1)) {
                (b';', Some(b';')) => at += 2,
                (b';', _) => {
                    match field(&body[start..at], unescape_semicolon) {
                        Ok(field) if !field.0.contains('\0') => fields.push(field),
                        _ => break,
                    }
                    at += 1;
                    start = at;
                }
                _ => at += 1,
            }
        }
        Ok((Message { counted: true, fields }, &body[start..]))
    }

    /// What comes behind `cmd=` or `mcmd=`.
    pub fn name(&self) -> &str {
        match self.fields.first() {
            Some((key, name)) if key == "cmd" || key == "mcmd" => {
                std::str::from_utf8(name).unwrap_or_default()
            }
            _ => "",
        }
    }

    /// A field's value.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_slice())
    }

    /// A field's value as text; empty where the field is missing.
    pub fn text(&self, key: &str) -> String {
        String::from_utf8_lossy(self.get(key).unwrap_or_default()).into_owned()
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.fields.iter().map(|(key, value)| format!("{key}={}", value.escape_ascii()));
        f.write_str(&fields.collect::<Vec<_>>().join(if self.counted { ";" } else { " " }))
    }
}

fn field(word: &[u8], unescape: fn(&[u8]) -> Vec<u8>) -> Result<(String, Vec<u8>), String> {
    let at = word.iter().position(|&b| b == b'=');
    let at = at.ok_or_else(|| format!("{:?} is no key=value", word.escape_ascii().to_string()))?;
    Ok((String::from_utf8_lossy(&word[..at]).into_owned(), unescape(&word[at + 1..])))
}

fn unescape_semicolon(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = value.iter().copied();
    while let Some(byte) = bytes.next() {
        out.push(byte);
        if byte == b';' {
            bytes.next();
        }
    }
    out
}

fn unescape_backslash(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = value.iter().copied();
    while let Some(byte) = bytes.next() {
        out.extend(if byte == b'\\' { bytes.next() } else { Some(byte) });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_taken_apart() {
        let line = Message::parse(b"cmd=put kvsname=k key=a value=b=c\\d\n").unwrap();
        assert_eq!((line.name(), line.text("value").as_str()), ("put", "b=cd"));
        let (counted, junk) = Message::captured(b"34    cmd=kvs-put;key=a;value=b;;c;\0junk").unwrap();
        assert_eq!((counted.name(), counted.text("value").as_str()), ("kvs-put", "b;c"));
        assert_eq!(junk, b"\0junk");
        assert_eq!(counted.to_string(), "cmd=kvs-put;key=a;value=b;c");
        let blocks =
            Message::parse(b"mcmd=spawn\narg1= a  \\b\nendcmd\nmcmd=spawn\narg1=\nendcmd\n").unwrap();
        assert_eq!((blocks.name(), blocks.text("arg1").as_str()), ("spawn", " a  \\b"));
        assert_eq!(blocks.fields.len(), 4);
        assert!(Message::parse(b"10    cmd=x;").is_err());
        assert!(Message::parse(b"5     cmd=x").is_err());
        assert!(Message::parse(b"cmd=x").is_err());
    }
}
