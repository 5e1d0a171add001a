/* A line of a header's table: a name, a value or size, and a text where it is one. */
struct entry {
    const char *name;
    long value;
    const char *text;
};
