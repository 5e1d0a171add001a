/* Output for programs that define CHECK. */
#include <stdio.h>
#include <unistd.h>

/* Writes a line with one call, so that lines of several processes do not mix. */
#define SAY(...)                                                      \
    do {                                                              \
        char said_[4096];                                             \
        int length_ = snprintf(said_, sizeof said_ - 1, __VA_ARGS__); \
        CHECK(length_ >= 0 && length_ < (int)sizeof said_ - 1);       \
        said_[length_++] = '\n';                                      \
        CHECK(write(1, said_, length_) == length_);                   \
    } while (0)
