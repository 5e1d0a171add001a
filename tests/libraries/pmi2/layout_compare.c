/* Compares the tables of the two headers. */
#include <stdio.h>
#include <string.h>
#include "layout.h"

extern const struct entry slurm[], own[];

int main(void)
{
    int i, wrong = 0;
    for (i = 0; slurm[i].name && own[i].name; i++) {
        const struct entry *a = &slurm[i], *b = &own[i];
        int text = !a->text != !b->text || (a->text && strcmp(a->text, b->text));
        if (strcmp(a->name, b->name) || a->value != b->value || text) {
            printf("%s: %ld %s, but %s: %ld %s\n", a->name, a->value, a->text ? a->text : "", b->name, b->value,
                   b->text ? b->text : "");
            wrong++;
        }
    }
    wrong += slurm[i].name != own[i].name;
    printf("%d compared, %d wrong\n", i, wrong);
    return wrong != 0;
}
