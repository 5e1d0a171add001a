// Encoding of records, postcard 1, and fixed layouts (docs/wasm-abi.md). A codec has `write(out, value)`, which appends to an array of bytes, and
// `read(reader)`.

// Bytes of the plugin that are not a record of the expected type.
export class InvalidRecord extends Error {}

// Bytes of a record that are not decoded yet.
export class Reader {
  constructor(record) {
    this.record = record;
    this.at = 0;
  }

  take(length) {
    const end = this.at + length;
    if (end > this.record.length) throw new InvalidRecord("the record is truncated");
    const taken = this.record.slice(this.at, end);
    this.at = end;
    return taken;
  }

  byte() {
    if (this.at === this.record.length) throw new InvalidRecord("the record is truncated");
    return this.record[this.at++];
  }

  // The next number: seven bits a byte, lowest first.
  varint(max) {
    for (let value = 0, unit = 1; ; unit *= 0x80) {
      const byte = this.byte();
      value += (byte & 0x7f) * unit;
      if (value > max || unit > max) throw new InvalidRecord(`a number above ${max}`);
      if (byte < 0x80) return value;
    }
  }

  end() {
    if (this.at !== this.record.length) throw new InvalidRecord("bytes behind the record");
  }
}

function writeVarint(out, value) {
  for (; value >= 0x80; value = Math.floor(value / 0x80)) out.push((value % 0x80) | 0x80);
  out.push(value);
}

function unsigned(max) {
  return {
    write(out, value) {
      if (!Number.isInteger(value) || value < 0 || value > max) throw new RangeError(`${value} is no number from 0 to ${max}`);
      writeVarint(out, value);
    },
    read: (reader) => reader.varint(max),
  };
}

export const u32 = unsigned(0xffff_ffff);
// Numbers above 2^53 have no exact value in JavaScript.
export const u64 = unsigned(Number.MAX_SAFE_INTEGER);

export const u8 = {
  write(out, value) {
    if (!Number.isInteger(value) || value < 0 || value > 0xff) throw new RangeError(`${value} is no byte`);
    out.push(value);
  },
  read: (reader) => reader.byte(),
};

export const i32 = {
  write(out, value) {
    if (value !== (value | 0)) throw new RangeError(`${value} is no signed number of 32 bits`);
    writeVarint(out, ((value << 1) ^ (value >> 31)) >>> 0);
  },
  read(reader) {
    const zigzag = reader.varint(0xffff_ffff);
    return (zigzag >>> 1) ^ -(zigzag & 1);
  },
};

export const bool = {
  write: (out, value) => out.push(value ? 1 : 0),
  read(reader) {
    const byte = reader.byte();
    if (byte > 1) throw new InvalidRecord(`${byte} is no boolean`);
    return byte === 1;
  },
};

export const bytes = {
  write(out, value) {
    writeVarint(out, value.length);
    for (const byte of value) out.push(byte);
  },
  read: (reader) => reader.take(u32.read(reader)),
};

export const str = {
  write: (out, value) => bytes.write(out, new TextEncoder().encode(value)),
  read(reader) {
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes.read(reader));
    } catch (error) {
      throw error instanceof InvalidRecord ? error : new InvalidRecord("a text that is not UTF-8");
    }
  },
};

// A value, or null.
export function option(codec) {
  return {
    write(out, value) {
      bool.write(out, value != null);
      if (value != null) codec.write(out, value);
    },
    read: (reader) => (bool.read(reader) ? codec.read(reader) : null),
  };
}

// A field that an object does not have. Reading it would give undefined, and a host would wait for ever.
const UNKNOWN = new Proxy(Object.prototype, {
  get(known, name, object) {
    // `await` and JSON.stringify look for these.
    if (typeof name === "symbol" || name in known || name === "then" || name === "toJSON") return known[name];
    throw new TypeError(`no field ${name}; the fields: ${Object.keys(object).join(", ")}`);
  },
});

// An object of which unknown fields cannot be read.
export const known = (fields) => Object.assign(Object.create(UNKNOWN), fields);

// Refuses fields that would be ignored.
function checkFields(value, fields) {
  for (const name of Object.keys(value)) {
    if (!Object.hasOwn(fields, name) && name !== "type") {
      throw new TypeError(`no field ${name}; the fields: ${Object.keys(fields).join(", ")}`);
    }
  }
}

// An object with these fields, some of which have defaults.
export function struct(fields, defaults = {}) {
  const codecs = Object.entries(fields);
  return {
    write(out, value) {
      checkFields(value, fields);
      for (const [name, codec] of codecs) {
        const given = Object.hasOwn(value, name) ? value[name] : undefined;
        const field = given === undefined ? defaults[name] : given;
        if (field === undefined) throw new TypeError(`${name} is missing`);
        codec.write(out, field);
      }
    },
    read: (reader) => known(Object.fromEntries(codecs.map(([name, codec]) => [name, codec.read(reader)]))),
  };
}

// One of these strings.
export function plain(names) {
  return {
    write(out, value) {
      const number = names.indexOf(value);
      if (number < 0) throw new TypeError(`${value} is none of ${names.join(", ")}`);
      writeVarint(out, number);
    },
    read(reader) {
      const number = u32.read(reader);
      if (number >= names.length) throw new InvalidRecord(`no variant ${number} of ${names.join(", ")}`);
      return names[number];
    },
  };
}

// An object whose `type` names the variant, with the variant's fields.
export function variants(fields) {
  const names = plain(Object.keys(fields));
  const structs = Object.fromEntries(Object.entries(fields).map(([name, fields]) => [name, struct(fields)]));
  return {
    write(out, value) {
      names.write(out, value.type);
      structs[value.type].write(out, value);
    },
    read(reader) {
      const type = names.read(reader);
      return known({ type, ...structs[type].read(reader) });
    },
  };
}

// Little-endian numbers of these lengths, 4 or 8 bytes, one behind the other.
export function layout(fields) {
  const names = Object.entries(fields);
  const view = (bytes, at) => new DataView(bytes.buffer, bytes.byteOffset + at);
  return {
    LENGTH: names.reduce((sum, [, length]) => sum + length, 0),
    // Writes it at an offset. Fields of 8 bytes are only read.
    write(bytes, at, value) {
      for (const [name, length] of names) {
        view(bytes, at).setUint32(0, value[name], true);
        at += length;
      }
    },
    read(bytes, at) {
      if (at + this.LENGTH > bytes.length) throw new InvalidRecord("the return is truncated");
      const value = {};
      for (const [name, length] of names) {
        value[name] = length === 4 ? view(bytes, at).getUint32(0, true) : Number(view(bytes, at).getBigUint64(0, true));
        at += length;
      }
      return value;
    },
  };
}

export function encode(codec, value) {
  const out = [];
  codec.write(out, value);
  return Uint8Array.from(out);
}
