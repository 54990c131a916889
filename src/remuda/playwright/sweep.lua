-- Ends connections whose gateway died, forgives workers that were suspected or told to leave long enough ago, and
-- has workers at their limit restart whose turn has come.
-- ARGV[1] concurrent, MAX_CONCURRENT_SESSIONS
-- ARGV[2] lifetime, MAX_LIFETIME_SESSIONS
-- ARGV[3] percent of the workers that may be out at the same time
-- ARGV[4] seconds for which the shutdown command stays
-- ARGV[5] most, of each kind, to work on in this run
-- returns how many connections were ended

places = tonumber(ARGV[1])
local limit, percent, seconds = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local healed = prune(ARGV[5])
for _, zset in ipairs({SUSPECTS, LEAVING}) do
  for _, worker in ipairs(call('ZRANGE', zset, '-inf', now, 'BYSCORE', 'LIMIT', 0, ARGV[5])) do
    call('ZREM', zset, worker)
    -- One that was told to leave and did not is not waited for either.
    if zset == LEAVING then call('ZREM', VACANT, worker) end
    file(worker)
  end
end
for _, version in ipairs(call('ZRANGE', OFFERS, 0, -1)) do
  local index = string.format(KEYS[17], version)
  repeat
    local due = call('ZRANGE', index, '+inf', '(' .. limit - 1, 'BYSCORE', 'REV', 'LIMIT', 0, 1)[1]
    -- One that is dead falls out here, and the next is looked at.
    local is_done = not due or file(due) == index and not restart_if_due(due, limit, percent, seconds)
    if due and not is_done then call('ZREM', index, due) end
  until is_done
end
return healed
