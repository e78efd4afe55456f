/* A libnvidia-ml of another version than the kernel's driver, as an upgrade without a reboot leaves it: every way in
   answers NVML_ERROR_LIB_RM_VERSION_MISMATCH (18). */
#include <stdio.h>

#define MISMATCH 18

int nvmlInit(void) { return MISMATCH; }
int nvmlInit_v2(void) { return MISMATCH; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return MISMATCH; }
int nvmlShutdown(void) { return MISMATCH; }
const char *nvmlErrorString(int code) { (void)code; return "Driver/library version mismatch"; }
int nvmlSystemGetNVMLVersion(char *text, unsigned size) { snprintf(text, size, "%s", "535.104.05"); return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { (void)text; (void)size; return MISMATCH; }
