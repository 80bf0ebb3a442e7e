/* What gcc's instrumentation calls, told to libFuzzer.
 *
 * gcc knows -fsanitize-coverage=trace-pc,trace-cmp: a call at each basic block and at each comparison. libFuzzer wants
 * 8-bit counters, one per block, with a table of addresses beside them, and the comparisons as they are. So each
 * address that calls gets the next free counter, by a hash table, and a comparison is passed on by a jump, so that
 * libFuzzer sees who compared as its caller.
 *
 * The library is loaded before AddressSanitizer's, which has empty functions of the same names. Until `attach` it
 * counts without telling anybody. Two threads may race for a counter: then one count is lost, and nothing else.
 */
#include <stddef.h>
#include <stdint.h>

enum { COUNTERS = 1 << 17, SLOTS = 1 << 19 };

struct site { uintptr_t pc, flags; };

static uint8_t counters[COUNTERS];
static struct site sites[COUNTERS]; /* libFuzzer's table of addresses; an entry is filled when its block first runs */
static uintptr_t keys[SLOTS];
static uint32_t places[SLOTS];
static uint32_t used = 1; /* counter 0 is what comes when the table is full */

typedef void (*comparison)(uint64_t a, uint64_t b);

static void nobody(uint64_t a, uint64_t b) { (void)a; (void)b; }

/* Whatever their width, the two values are in the same two registers. A call in the last place is a jump. */
#define COMPARISON(name)                                                          \
    static comparison to_##name = nobody;                                         \
    void __sanitizer_cov_##name(uint64_t a, uint64_t b) { to_##name(a, b); }
COMPARISON(trace_cmp1)
COMPARISON(trace_cmp2)
COMPARISON(trace_cmp4)
COMPARISON(trace_cmp8)
COMPARISON(trace_const_cmp1)
COMPARISON(trace_const_cmp2)
COMPARISON(trace_const_cmp4)
COMPARISON(trace_const_cmp8)
COMPARISON(trace_switch)

/* Comparisons of floating point numbers: libFuzzer takes none. */
void __sanitizer_cov_trace_cmpf(float a, float b) { (void)a; (void)b; }
void __sanitizer_cov_trace_cmpd(double a, double b) { (void)a; (void)b; }

void __sanitizer_cov_trace_pc(void)
{
    uintptr_t pc = (uintptr_t)__builtin_return_address(0);
    uint32_t slot = (uint32_t)((pc * 0x9E3779B97F4A7C15ull) >> 45);
    while (keys[slot] != pc) {
        if (keys[slot] == 0) {
            if (used == COUNTERS) {
                counters[0]++;
                return;
            }
            keys[slot] = pc;
            places[slot] = used;
            sites[used].pc = pc;
            used++;
            break;
        }
        slot = (slot + 1) % SLOTS;
    }
    counters[places[slot]]++;
}

/* How many blocks have run so far. */
uint32_t coverage_blocks(void) { return used - 1; }

/* Atheris registers its counters for Python code by these names; they wait here until libFuzzer is known. */
typedef void (*registration)(void *first, void *end);
enum { WAITING = 256 };
static registration to_counters, to_sites;
static struct { void *first, *end; } counters_waiting[WAITING], sites_waiting[WAITING];
static int counters_count, sites_count;

void __sanitizer_cov_8bit_counters_init(void *first, void *end)
{
    if (to_counters)
        to_counters(first, end);
    else if (counters_count < WAITING) {
        counters_waiting[counters_count].first = first;
        counters_waiting[counters_count++].end = end;
    }
}

void __sanitizer_cov_pcs_init(void *first, void *end)
{
    if (to_sites)
        to_sites(first, end);
    else if (sites_count < WAITING) {
        sites_waiting[sites_count].first = first;
        sites_waiting[sites_count++].end = end;
    }
}

/* Register all counters, and from now on pass comparisons on: libFuzzer's functions, in the order of the names above. */
void coverage_attach(registration counters_init, registration pcs_init, const comparison *comparisons)
{
    int i;
    to_counters = counters_init;
    to_sites = pcs_init;
    to_counters(counters, counters + COUNTERS);
    to_sites(sites, sites + COUNTERS);
    for (i = 0; i < counters_count; i++)
        to_counters(counters_waiting[i].first, counters_waiting[i].end);
    for (i = 0; i < sites_count; i++)
        to_sites(sites_waiting[i].first, sites_waiting[i].end);
    to_trace_cmp1 = comparisons[0];
    to_trace_cmp2 = comparisons[1];
    to_trace_cmp4 = comparisons[2];
    to_trace_cmp8 = comparisons[3];
    to_trace_const_cmp1 = comparisons[4];
    to_trace_const_cmp2 = comparisons[5];
    to_trace_const_cmp4 = comparisons[6];
    to_trace_const_cmp8 = comparisons[7];
    to_trace_switch = comparisons[8];
}
