-- Finds workers whose key is gone: they have died, or are cut off from Redis.
-- ARGV[1..] workers to look at: few at a time, since Redis does nothing else meanwhile
-- returns those whose key is gone

local silent = {}
for _, worker in ipairs(ARGV) do
  if call('EXISTS', key_of(worker)) == 0 then silent[#silent + 1] = worker end
end
return silent
