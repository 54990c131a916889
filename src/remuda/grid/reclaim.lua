-- Finds the lost ones among some slots of an orchestrator. Orphaned ones, which nobody holds, go back at once; sessions that
-- hold a slot without being alive are only named, since their node must be gone before their slot is free.
-- KEYS[1] orchestrator:{orchestrator}:slots.available
-- KEYS[2] orchestrator:{orchestrator}:slots.reclaimed
-- KEYS[3] remuda:orchestrator:{orchestrator}:holders
-- KEYS[4] metrics:slots:reclaimed.total
-- ARGV[1] slot, template by session
-- ARGV[2] status, template by session
-- ARGV[3] heartbeat.manager, template by session
-- ARGV[4] heartbeat.node, template by session
-- ARGV[5..] slots to look at: few at a time, since Redis does nothing else meanwhile
-- returns the dead sessions and the orphaned slots

local free = {}
for _, list in ipairs({KEYS[1], KEYS[2]}) do
  for _, slot in ipairs(redis.call('LRANGE', list, 0, -1)) do
    free[slot] = true
  end
end

local function is_alive(session)
  local status = string.format(ARGV[2], session)
  local node = redis.call('EXISTS', string.format(ARGV[4], session)) == 1
  if redis.call('HEXISTS', status, 'aliveAt') == 1 or redis.call('HEXISTS', status, 'terminatedAt') == 1 then
    return node
  end
  return redis.call('EXISTS', string.format(ARGV[3], session)) == 1
end

local dead, orphaned = {}, {}
for index = 5, #ARGV do
  local slot = ARGV[index]
  if free[slot] then
    -- Other software gives a slot back without our note of its holder.
    redis.call('HDEL', KEYS[3], slot)
  else
    local session = redis.call('HGET', KEYS[3], slot)
    if not session or redis.call('GET', string.format(ARGV[1], session)) ~= slot then
      redis.call('HDEL', KEYS[3], slot)
      redis.call('RPUSH', KEYS[2], slot)
      redis.call('HINCRBY', KEYS[4], 'orphaned', 1)
      orphaned[#orphaned + 1] = slot
    elseif not is_alive(session) then
      dead[#dead + 1] = session
    end
  end
end
return {dead, orphaned}
